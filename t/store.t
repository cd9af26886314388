#!/usr/bin/perl
# admin/config-mistakes of "sandbox_store": nginx -t makes the folder, or says
# what is wrong with it and how it would be right.

use strict;
use warnings;

use Cwd qw(abs_path);
use File::Basename qw(dirname);
use File::Temp ();
use Test::More;

my $top = abs_path(dirname(__FILE__) . "/..");
my $nginx = $ENV{TEST_NGINX_BINARY} || "/usr/sbin/nginx";
my $module = $ENV{TEST_NGINX_LOAD_MODULES}
             || ($ENV{BUILD} || "$top/build") . "/ngx_http_sandbox_module.so";
my $dir = File::Temp->newdir("/tmp/sandbox-t.XXXXXX", CLEANUP => 1);
my ($user, $uid) = ("www-data", (getpwnam "www-data")[2]);

chmod 0755, $dir;

sub write_file
{
    my ($name, $data) = @_;

    open my $out, ">:raw", "$dir/$name" or die "$dir/$name: $!";
    print $out $data;
    close $out;
    chmod 0600, "$dir/$name";
}

write_file("jwt.key", "x" x 40);
write_file("runner.key", "ab" x 32);
write_file("file", "not a folder");

sub nginx_t
{
    my ($directive) = @_;

    $directive =~ s/\bDIR\b/$dir/g;

    write_file("nginx.conf", <<"_EOC_");
load_module $module;
user $user;
pid $dir/nginx.pid;
error_log stderr warn;
events {}
http {
    access_log off;
    client_body_temp_path $dir/body;
    proxy_temp_path $dir/proxy;
    fastcgi_temp_path $dir/fastcgi;
    uwsgi_temp_path $dir/uwsgi;
    scgi_temp_path $dir/scgi;
    sandbox_runner unix:$dir/runner.sock;
    sandbox_runner_key $dir/runner.key;
    server {
        listen unix:$dir/nginx.sock;
        location /sandbox/ {
            sandbox on;
            sandbox_jwt_secret_file $dir/jwt.key;
            $directive
        }
    }
}
_EOC_

    my $text = `timeout 200 $nginx -t -c $dir/nginx.conf -e stderr 2>&1`;

    return ($?, $text);
}

sub accepted
{
    my ($name, $directive) = @_;
    my ($status, $text) = nginx_t($directive);

    is($status, 0, "accepted: $name") or diag($text);
    unlike($text, qr/\[warn\]/, "no warning: $name") or diag($text);
}

sub warned
{
    my ($name, $directive, $warning) = @_;
    my ($status, $text) = nginx_t($directive);

    is($status, 0, "accepted: $name") or diag($text);
    like($text, $warning, "warning: $name");
}

sub refused
{
    my ($name, $directive, $problem) = @_;
    my ($status, $text) = nginx_t($directive);

    isnt($status, 0, "refused: $name");
    like($text, $problem, "problem: $name");
    like($text, qr/nginx\.conf:\d+/, "line: $name");
}


accepted("a path that nginx makes", "sandbox_store DIR/new;");

SKIP: {
    skip "needs root for another user's folder", 2 if $> != 0;

    my @stat = stat "$dir/new";
    is($stat[4], $uid, "it belongs to the workers");
    is($stat[2] & 07777, 0700, "to them alone");
}

accepted("the same again", "sandbox_store DIR/new/;");
accepted("off", "sandbox_store off;");
accepted("all of it",
         "sandbox_store DIR/new files=10 size=1m tenant_size=2m;");
accepted("the largest", "sandbox_store DIR/new files=10000 size=1000g "
                        . "tenant_size=1048576g;");

refused("no path", "sandbox_store;", qr/invalid number of arguments/);
refused("a relative path", "sandbox_store store;", qr/it must be an absolute one, such as/);
refused("nothing above it", "sandbox_store DIR/a/b;",
        qr/can't make ".*\/a\/b".*install -d -m 0700 -o www-data/);
refused("a file", "sandbox_store DIR/file;", qr/is not a folder/);
refused("too long", "sandbox_store /" . "x" x 600 . ";",
        qr/has 601 bytes, it may have 512/);
refused("twice", "sandbox_store DIR/new; sandbox_store DIR/new;",
        qr/"sandbox_store" directive is duplicate/);

for my $bad ("files=0", "files=10001", "files=x", "files=", "size=0",
             "size=1x", "size=-1", "tenant_size=", "tenant_size=1048577g",
             "max=1", "files", "off")
{
    refused($bad, "sandbox_store DIR/new $bad;",
            qr/invalid parameter "\Q$bad\E".*files=NUMBER/);
}

refused("a tenant with less than a conversation",
        "sandbox_store DIR/new size=2g tenant_size=1g;",
        qr/"tenant_size".*less than "size"/);

SKIP: {
    skip "needs root for another user's folder", 8 if $> != 0;

    mkdir "$dir/root", 0700;
    write_file("root/x", "");
    warned("root's, with something in it", "sandbox_store DIR/root;",
           qr/does not belong.*chown -R www-data/);
    is((stat "$dir/root")[4], 0, "it is left alone");

    mkdir "$dir/open", 0755;
    chmod 0755, "$dir/open";
    chown $uid, -1, "$dir/open";
    warned("open to others", "sandbox_store DIR/open;",
           qr/open to other users.*chmod 0700/);

    mkdir "$dir/closed", 0700;
    mkdir "$dir/closed/store", 0700;
    chown $uid, -1, "$dir/closed/store";
    warned("below a folder that the workers can't enter",
           "sandbox_store DIR/closed/store;",
           qr/can't enter ".*\/closed"/);

    is((stat "$dir/closed")[2] & 07777, 0700, "it is left alone");
}

done_testing();
