#!/usr/bin/perl
# admin/config-mistakes: nginx -t finds them, and names the file, the line
# where there is one, and what would be right.  Also what must be accepted.

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

chmod 0755, $dir;    # workers must get at a store in it

sub write_file
{
    my ($name, $data) = @_;

    open my $out, ">:raw", "$dir/$name" or die "$dir/$name: $!";
    print $out $data;
    close $out;
    chmod 0600, "$dir/$name";
}

sub nginx_t
{
    my ($http, $location, %options) = @_;

    my $base = $options{base} // <<"_EOC_";
    sandbox_zone z:1m;
    sandbox_runner unix:$dir/runner.sock;
    sandbox_runner_key $dir/runner.key;
_EOC_
    my $jwt = $options{jwt} // "sandbox_jwt_secret_file $dir/jwt.key;";
    my $on = $options{on} // "sandbox on;";
    my $main = $options{main} // "";
    s/\bDIR\b/$dir/g for $http, $location, $jwt, $base;

    write_file("nginx.conf", <<"_EOC_");
load_module $module;
pid $dir/nginx.pid;
error_log stderr warn;
$main
events {}
http {
    access_log off;
    client_body_temp_path $dir/body;
    proxy_temp_path $dir/proxy;
    fastcgi_temp_path $dir/fastcgi;
    uwsgi_temp_path $dir/uwsgi;
    scgi_temp_path $dir/scgi;
$base
$http
    server {
        listen unix:$dir/nginx.sock;
        location /sandbox/ {
            $on
            $jwt
            $location
        }
    }
}
_EOC_

    local %ENV = (%ENV, %{ $options{env} // {} });
    my $text = `timeout 200 $nginx -t -c $dir/nginx.conf -e stderr 2>&1`;

    return ($?, $text);
}

sub accepted
{
    my ($name, $http, $location, %options) = @_;

    my ($status, $text) = nginx_t($http, $location, %options);

    is($status, 0, "accepted: $name") or diag($text);
    unlike($text, qr/\[(warn|error|alert|crit|emerg)\]/,
           "accepted without a word: $name") unless $options{warns};
    like($text, $options{warns}, "accepted with a warning: $name")
        if $options{warns};
}

sub refused
{
    my ($name, $http, $location, $why, %options) = @_;

    my ($status, $text) = nginx_t($http, $location, %options);

    isnt($status, 0, "refused: $name");
    is($status & 127, 0, "refused without a crash: $name");
    my ($line) = grep { /\[emerg\]/ } split /\n/, $text;
    like($line // "", $why, "refused for the right reason: $name")
        or diag($text);
    like($line // "", qr/nginx\.conf:\d+$|"\S+" in \S+:\d+/,
         "the line is named: $name");
}

write_file("runner.key", "5a" x 32 . "\n");
write_file("jwt.key", "x" x 40);
write_file("empty", "");
write_file("short", "x" x 31);
write_file("pem", "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n");
write_file("json", '{"keys":[{"kty":"oct","k":"AAAAAAAAAAAAAAAAAAAAAAAA"}]}');
write_file("garbage", "this is no key, but has more than thirty-two bytes\n");
write_file("open.key", "x" x 40);
chmod 0644, "$dir/open.key";
mkdir "$dir/folder";
system("openssl genrsa -out $dir/private.pem 2048 2>/dev/null") == 0 or die;
system("openssl pkey -in $dir/private.pem -pubout -out $dir/public.pem") == 0
    or die;
for my $curve (["ec", "prime256v1"], ["p384", "secp384r1"],
               ["p521", "secp521r1"], ["koblitz", "secp256k1"])
{
    my ($name, $long) = @$curve;

    system("openssl ecparam -genkey -name $long -noout -out $dir/$name.key"
           . " && openssl pkey -in $dir/$name.key -pubout -out $dir/$name.pem")
        == 0 or die;
}

system("openssl genrsa -out $dir/weak.key 1024 2>/dev/null && openssl pkey "
       . "-in $dir/weak.key -pubout -out $dir/weak.pem") == 0 or die;
system("openssl req -x509 -new -key $dir/ec.key -subj /CN=x -out $dir/cert.pem "
       . "2>/dev/null") == 0 or die;

# secrets, written down in every way

write_file("hex.key", "5a" x 32 . "\n");
write_file("digest", "sha256:" . "5a" x 32 . "\n");
write_file("hex48.key", "5a" x 48);
write_file("base64url.key", "-_" . "A" x 41 . "\n");
write_file("raw64.key", "x" x 64);
write_file("odd.key", "5a" x 32 . "5");
write_file("short.hex", "5a" x 31);

my $k = "A" x 43;
write_file("set.json", qq({"keys":[{"kty":"oct","alg":"HS256","kid":"a",)
           . qq("k":"$k"}]}));
write_file("double.json", qq({"keys":[{"kty":"oct","alg":"HS256","alg":"HS512",)
           . qq("k":"$k"}]}));
write_file("none.json", '{"keys":[]}');
write_file("encrypt.json", qq({"keys":[{"kty":"oct","alg":"HS256","use":"enc",)
           . qq("k":"$k"}]}));
write_file("weak.json", '{"keys":[{"kty":"oct","alg":"HS256","k":"AAAA"}]}');
write_file("many.json", '{"keys":[' . join(",", map {
    qq({"kty":"oct","alg":"HS256","kid":"$_","k":"$k"}) } 1 .. 65) . "]}");
write_file("open.json", qq({"keys":[{"kty":"oct","alg":"HS256","k":"$k"}]}));
chmod 0644, "$dir/open.json";

# what the libjwt that is installed has; 1.10 has neither PS nor EdDSA

my $more = do {
    my ($status, $text) = nginx_t("", "sandbox_jwt_algorithms PS256;",
        jwt => "sandbox_jwt_key_file DIR/public.pem;");
    $status == 0;
};


# what is right

accepted("the example", "", "");
accepted("module loaded and not used", "", "", base => "", jwt => "",
         on => "");
accepted("an RSA key", "", "", jwt => "sandbox_jwt_key_file DIR/public.pem;");
accepted("keys of every curve", "", "sandbox_jwt_algorithms ES256 ES384 ES512;",
         jwt => "sandbox_jwt_key_file DIR/ec.pem; sandbox_jwt_key_file "
                . "DIR/p384.pem kid=b; sandbox_jwt_key_file DIR/p521.pem;");
accepted("a certificate", "", "sandbox_jwt_algorithms ES256;",
         jwt => "sandbox_jwt_key_file DIR/cert.pem;");
accepted("every algorithm of RSA", "",
         "sandbox_jwt_algorithms RS256 RS384 RS512;",
         jwt => "sandbox_jwt_key_file DIR/public.pem;");
accepted("secrets, written down in every way", "",
         "sandbox_jwt_algorithms HS256 HS384 HS512;",
         jwt => "sandbox_jwt_secret_file DIR/hex.key format=hex; "
                . "sandbox_jwt_secret_file DIR/hex48.key kid=b format=hex; "
                . "sandbox_jwt_secret_file DIR/base64url.key format=base64url "
                . "kid=a; sandbox_jwt_secret_file DIR/raw64.key format=raw;");
accepted("a key set", "", "", jwt => "sandbox_jwks_file DIR/set.json;");
accepted("keys of all kinds", "", "sandbox_jwt_algorithms HS256 RS256;",
         jwt => "sandbox_jwks_file DIR/set.json; sandbox_jwt_key_file "
                . "DIR/public.pem; sandbox_jwt_secret_file DIR/jwt.key;");
accepted("a key set with a secret that all can read", "", "",
         jwt => "sandbox_jwks_file DIR/open.json;",
         warns => qr/\[warn\].*"chmod o=/);
accepted("claims", "", <<'_EOC_');
sandbox_permission_claim realm_access.roles "https://example\.com/perm" scope;
sandbox_tenant_claim org.id; sandbox_conversation_claim chat;
sandbox_permission_read sandbox:read; sandbox_jwt_audience a b c;
_EOC_
accepted("claims further out", <<'_EOC_', "sandbox_tenant_claim other;");
sandbox_permission_claim roles; sandbox_tenant_claim org;
sandbox_conversation_claim chat; sandbox_permission_read sandbox:read;
sandbox_jwt_audience a;
_EOC_
accepted("another key further in, another algorithm follows", "",
         "location /sandbox/rs/ { sandbox_jwt_key_file DIR/public.pem; }");
# who signs for one of two servers must not reach the sessions of the other

sub server
{
    return "server { listen unix:DIR/other.sock; location /sandbox/ { "
           . "sandbox on; $_[0] } }";
}

my $same_realm = qr/in two servers with different keys, and their sessions/;

accepted("two servers, the same key",
         server("sandbox_jwt_secret_file DIR/jwt.key;"), "");
accepted("two servers, two issuers",
         server("sandbox_jwt_key_file DIR/public.pem; "
                . "sandbox_jwt_issuer https://id.example/;"), "");
accepted("two servers that share a realm by name",
         server("sandbox_jwt_key_file DIR/public.pem; sandbox_realm one;"),
         "sandbox_realm one;");
refused("two servers, two keys, one realm by chance",
        server("sandbox_jwt_key_file DIR/public.pem;"), "", $same_realm);
refused("two servers, a key and a URL",
        server("sandbox_jwks_url http://127.0.0.1:1/;"), "", $same_realm);
refused("two servers, a key more",
        server("sandbox_jwt_secret_file DIR/jwt.key; "
               . "sandbox_jwt_key_file DIR/public.pem;"), "", $same_realm);

accepted("a secret that all can read", "", "",
         jwt => "sandbox_jwt_secret_file DIR/open.key;",
         warns => qr/\[warn\].*"chmod o=/);
accepted("all caps", "", <<'_EOC_');
sandbox_cpu_time 30s; sandbox_memory 1g; sandbox_wall_time 120s;
sandbox_output 256k; sandbox_output_total 1g; sandbox_file_size 16m;
sandbox_command_size 256k; sandbox_processes 256; sandbox_open_files 1024;
sandbox_disk 1g; sandbox_pending 10; sandbox_connect_timeout 1s;
sandbox_send_timeout 10s; sandbox_permission sandbox:execute;
sandbox_realm house; sandbox_jwt_issuer https://id.example/;
sandbox_jwt_audience gateway; sandbox_jwt_leeway 30s;
sandbox_jwt_algorithms HS256;
_EOC_
accepted("all of the zone", "sandbox_zone y:1m max=10 per_tenant=2 running=5 "
         . "queue=20 idle=1m;", "", base => "sandbox_runner unix:DIR/s; "
         . "sandbox_runner_key DIR/runner.key;");
accepted("off", "", "", on => "sandbox off;", jwt => "");
accepted("env, and it says true", "", "", on => "sandbox env;",
         main => "env ARCHESTRA_CODE_RUNTIME_ENABLED;",
         env => { ARCHESTRA_CODE_RUNTIME_ENABLED => "true" });
accepted("env without the env line", "", "", on => "sandbox env;",
         env => { ARCHESTRA_CODE_RUNTIME_ENABLED => "true" },
         warns => qr/\[warn\].*ARCHESTRA_CODE_RUNTIME_ENABLED/);

accepted("egress on engines without a firewall",
         "sandbox_egress_policy p { allow a.example; }", "sandbox_egress p;",
         base => "sandbox_runner_key DIR/runner.key; sandbox_dagger_image "
         . "a/b DIR/digest; sandbox_dagger tcp://127.0.0.1:1;",
         warns => qr/\[warn\].*"sandbox_egress p" is best effort/);
accepted("egress on engines behind one",
         "sandbox_egress_policy p { allow a.example; }", "sandbox_egress p;",
         base => "sandbox_runner_key DIR/runner.key; sandbox_dagger_image "
         . "a/b DIR/digest; sandbox_dagger tcp://127.0.0.1:1 isolated;");

# conf.d, as it stands, and with each line that is commented out

sub example
{
    my ($name, $all) = @_;

    open my $in, "<", "$top/conf.d/$name" or die "$name: $!";
    local $/;
    my $text = <$in>;

    $text =~ s!^#(sandbox_\w+ [^;\n]*\{\n)((?:#.*\n)+?)#\}!
               my ($first, $rest) = ($1, $2);
               $first . ($rest =~ s/^#//mgr) . "\x7d"!mge if $all;
    $text =~ s/^(\s*)#(sandbox_)/$1$2/mg if $all;

    # its default is a file of the host, which need not be there

    $text =~ s/^(\s*)#(sandbox_dagger_image )/$1$2/mg;
    $text =~ s{/etc/nginx/sandbox-ca\.pem}{DIR/cert.pem}g;
    $text =~ s{/etc/nginx/sandbox-runner\.key}{DIR/runner.key}g;
    $text =~ s{/etc/nginx/sandbox-issuer\.pem}{DIR/public.pem}g;
    $text =~ s{/etc/nginx/sandbox-issuer\.json}{DIR/set.json}g;
    $text =~ s{/etc/nginx/sandbox-jwt\.key}{DIR/jwt.key}g;
    $text =~ s{/etc/nginx/sandbox-jwt\.hex}{DIR/hex.key}g;
    $text =~ s{/var/lib/nginx/sandbox}{DIR/store}g;
    $text =~ s{/usr/local/share/sandbox/skills}{DIR/folder}g;
    $text =~ s{/var/cache/sandbox/registry/digest}{DIR/digest}g;
    $text =~ s{/var/cache/sandbox/registry}{DIR/registry}g;
    $text =~ s{/run/sandbox/|/var/log/nginx/}{DIR/}g;
    $text =~ s{listen 8080}{listen unix:DIR/example.sock};
    $text =~ s{listen 127\.0\.0\.1:5000}{listen unix:DIR/registry.sock};
    unlike($text, qr{\s/(?:etc|var|run|usr)/}, "no file of the host: $name");

    return $text;
}

for my $name ("sandbox.conf", "sandbox-dagger.conf") {
    for my $all (0, 1) {
        accepted("conf.d/$name" . ($all ? ", all of it" : ""),
                 example($name, $all), "", base => "", jwt => "", on => "");
    }
}

accepted("conf.d/sandbox-minimal.conf", "server { listen unix:DIR/minimal.sock;"
         . example("sandbox-minimal.conf") . "}", "", base => "", jwt => "",
         on => "");


# mistakes

refused("an unknown word", "", "", qr/"perhaps".*"on"/s,
        on => "sandbox perhaps;");
refused("twice", "", "sandbox on;", qr/"sandbox" directive is duplicate/);
refused("a cap twice", "", "sandbox_memory 1g; sandbox_memory 2g;",
        qr/"sandbox_memory" directive is duplicate/);
refused("no value", "", "sandbox_memory;",
        qr/invalid number of arguments in "sandbox_memory"/);
refused("an unknown directive", "", "sandbox_memroy 1g;", qr/sandbox_memroy/);

refused("no key at all", "", "", qr/sandbox_jwt/, jwt => "");
refused("a missing secret", "", "", qr/nowhere.*(No such file|2:)/,
        jwt => "sandbox_jwt_secret_file DIR/nowhere;");
refused("an empty secret", "", "", qr/empty/,
        jwt => "sandbox_jwt_secret_file DIR/empty;");
refused("a short secret", "", "", qr/32/,
        jwt => "sandbox_jwt_secret_file DIR/short;");
refused("a secret that is a PEM", "", "", qr/PEM/,
        jwt => "sandbox_jwt_secret_file DIR/pem;");
refused("a secret that is JSON", "", "", qr/JSON/,
        jwt => "sandbox_jwt_secret_file DIR/json;");
refused("a secret that is a folder", "", "", qr/folder|directory|regular/,
        jwt => "sandbox_jwt_secret_file DIR/folder;");
refused("a key that is none", "", "", qr/garbage/,
        jwt => "sandbox_jwt_key_file DIR/garbage;");
refused("a broken PEM", "", "", qr/pem/,
        jwt => "sandbox_jwt_key_file DIR/pem;");
refused("a private key", "", "", qr/private/,
        jwt => "sandbox_jwt_key_file DIR/private.pem;");
refused("a missing key", "", "", qr/nowhere.*(No such file|2:)/,
        jwt => "sandbox_jwt_key_file DIR/nowhere;");
refused("an unknown algorithm", "", "sandbox_jwt_algorithms none;",
        qr/"none"/);
refused("an algorithm that no key fits", "", "sandbox_jwt_algorithms RS256;",
        qr/are for: HS256$| HS256 in /);
refused("an algorithm twice", "", "sandbox_jwt_algorithms HS256 HS256;",
        qr/"HS256" stands twice/);
refused("an algorithm in small letters", "", "sandbox_jwt_algorithms hs256;",
        qr/unknown algorithm "hs256"/);
refused("a longer secret's algorithm", "", "sandbox_jwt_algorithms HS512;",
        qr/are for: HS256/);
refused("another curve's algorithm", "", "sandbox_jwt_algorithms ES256;",
        qr/are for: ES384/,
        jwt => "sandbox_jwt_key_file DIR/p384.pem;");

for my $name (qw(PS256 PS384 PS512)) {
    refused("an algorithm that libjwt lacks, $name", "",
            "sandbox_jwt_algorithms RS256 $name;",
            qr/"$name".* not verified by the libjwt that is installed/,
            jwt => "sandbox_jwt_key_file DIR/public.pem;") unless $more;
    accepted("an algorithm that libjwt has, $name", "",
             "sandbox_jwt_algorithms RS256 $name;",
             jwt => "sandbox_jwt_key_file DIR/public.pem;") if $more;
}

refused("a curve that is not ours", "", "", qr/koblitz\.pem/,
        jwt => "sandbox_jwt_key_file DIR/koblitz.pem;");
refused("an RSA key of 1024 bits", "", "", qr/weak\.pem.*2048/,
        jwt => "sandbox_jwt_key_file DIR/weak.pem;");
refused("a secret in another format", "", "", qr/"rot13".*"base64url"/,
        jwt => "sandbox_jwt_secret_file DIR/jwt.key format=rot13;");
refused("a format twice", "", "", qr/unknown parameter "format=hex"/,
        jwt => "sandbox_jwt_secret_file DIR/hex.key format=hex format=hex;");
refused("a kid twice", "", "", qr/unknown parameter "kid=b"/,
        jwt => "sandbox_jwt_secret_file DIR/jwt.key kid=a kid=b;");
refused("an empty kid", "", "", qr/"kid=".*1 to 255/,
        jwt => "sandbox_jwt_key_file DIR/public.pem kid=;");
refused("a kid that is too long", "", "", qr/1 to 255/,
        jwt => "sandbox_jwt_key_file DIR/public.pem kid=" . "x" x 256 . ";");
refused("a format for a public key", "", "", qr/unknown parameter "format=hex"/,
        jwt => "sandbox_jwt_key_file DIR/public.pem format=hex;");
refused("hexadecimal digits, an odd number", "", "", qr/odd\.key/,
        jwt => "sandbox_jwt_secret_file DIR/odd.key format=hex;");
refused("no hexadecimal digits", "", "", qr/jwt\.key.*hex/,
        jwt => "sandbox_jwt_secret_file DIR/jwt.key format=hex;");
refused("hex that is too short", "", "", qr/short\.hex.*32/,
        jwt => "sandbox_jwt_secret_file DIR/short.hex format=hex;");
refused("no base64url", "", "", qr/garbage/,
        jwt => "sandbox_jwt_secret_file DIR/garbage format=base64url;");
refused("a key set that is none", "", "", qr/garbage.*JWK set/,
        jwt => "sandbox_jwks_file DIR/garbage;");
refused("a key set that is a PEM", "", "", qr/public\.pem/,
        jwt => "sandbox_jwks_file DIR/public.pem;");
refused("an empty key set", "", "", qr/none\.json/,
        jwt => "sandbox_jwks_file DIR/none.json;");
refused("a key set for encryption only", "", "", qr/encrypt\.json/,
        jwt => "sandbox_jwks_file DIR/encrypt.json;");
refused("a key set with a name twice", "", "", qr/double\.json/,
        jwt => "sandbox_jwks_file DIR/double.json;");
refused("a key set with a weak secret", "", "", qr/weak\.json/,
        jwt => "sandbox_jwks_file DIR/weak.json;");
refused("a key set of 65 keys", "", "", qr/64/,
        jwt => "sandbox_jwks_file DIR/many.json;");
refused("a missing key set", "", "", qr/nowhere.*(No such file|2:)/,
        jwt => "sandbox_jwks_file DIR/nowhere;");
refused("more than 64 keys", "", "", qr/too many keys/,
        jwt => "sandbox_jwt_secret_file DIR/jwt.key;" x 65);
refused("nine keys without a kid", "", "",
        qr/more than 8 keys for HS256 without a "kid".*give each a "kid"/,
        jwt => "sandbox_jwt_secret_file DIR/jwt.key;" x 9);

for my $name (qw(tenant_claim conversation_claim permission_claim)) {
    for my $bad ("a..b", ".a", "a.", ".", "", 'a\\x', "a.b.c.d.e.f.g.h.i",
                 "x" x 256)
    {
        refused("sandbox_$name " . substr($bad, 0, 20), "",
                qq(sandbox_$name "$bad";), qr/"sandbox_$name" directive/);
    }
}

refused("a claim twice", "", "sandbox_tenant_claim a; sandbox_tenant_claim b;",
        qr/"sandbox_tenant_claim" directive is duplicate/);
refused("permission claims twice", "",
        "sandbox_permission_claim a; sandbox_permission_claim b;",
        qr/"sandbox_permission_claim" directive is duplicate/);
refused("nine permission claims", "",
        "sandbox_permission_claim a b c d e f g h i;", qr/may be 8/);
refused("audiences twice", "",
        "sandbox_jwt_audience a; sandbox_jwt_audience b;",
        qr/"sandbox_jwt_audience" directive is duplicate/);
refused("an empty audience", "", 'sandbox_jwt_audience a "";',
        qr/"sandbox_jwt_audience"/);
refused("seventeen audiences", "",
        "sandbox_jwt_audience " . join(" ", 1 .. 17) . ";", qr/may be 16/);
refused("two tenants' claims", "", "sandbox_tenant_claim a b;",
        qr/invalid number of arguments in "sandbox_tenant_claim"/);
refused("one permission for both", "",
        "sandbox_permission_read sandbox:execute;",
        qr/both "sandbox:execute"/);
refused("half a second of leeway", "", "sandbox_jwt_leeway 500ms;",
        qr/"sandbox_jwt_leeway".*whole seconds/);
refused("leeway over a minute", "", "sandbox_jwt_leeway 61s;",
        qr/sandbox_jwt_leeway|60/);
refused("a permission of two words", "", 'sandbox_permission "a b";',
        qr/a b/);
refused("an empty permission", "", 'sandbox_permission "";',
        qr/permission/);

refused("a missing runner key", "", "", qr/nowhere.*(No such file|2:)/,
        base => "sandbox_runner unix:DIR/s; sandbox_runner_key DIR/nowhere;");
refused("a runner key of a wrong size", "", "", qr/32|64/,
        base => "sandbox_runner unix:DIR/s; sandbox_runner_key DIR/short;");
refused("no runner key", "", "", qr/sandbox_runner_key/,
        base => "sandbox_runner unix:DIR/s;");
refused("no runner", "", "", qr/sandbox_runner/, base => "");
refused("a runner without unix:", "sandbox_runner /run/s;", "", qr/unix:/,
        base => "");
refused("a runner on TCP", "sandbox_runner 127.0.0.1:80;", "", qr/unix:/,
        base => "");
refused("a runner that is a folder", "", "", qr/folder|directory|socket/,
        base => "sandbox_runner unix:DIR/folder; "
                . "sandbox_runner_key DIR/runner.key;");
refused("a runner that is a file", "", "", qr/socket/,
        base => "sandbox_runner unix:DIR/jwt.key; "
                . "sandbox_runner_key DIR/runner.key;");
refused("a socket path that is too long", "", "", qr/long|107|108/,
        base => "sandbox_runner unix:DIR/" . "x" x 120 . "; "
                . "sandbox_runner_key DIR/runner.key;");

refused("a zone that is too small", "", "", qr/too small|at least/,
        base => "sandbox_zone z:4k; sandbox_runner unix:DIR/s; "
                . "sandbox_runner_key DIR/runner.key;");
refused("a zone without a size", "", "", qr/zone|size/,
        base => "sandbox_zone z; sandbox_runner unix:DIR/s; "
                . "sandbox_runner_key DIR/runner.key;");
refused("a zone of size 0", "", "", qr/zone|size/,
        base => "sandbox_zone z:0; sandbox_runner unix:DIR/s; "
                . "sandbox_runner_key DIR/runner.key;");
refused("two zones", "sandbox_zone y:1m;", "", qr/zone/);
refused("an unknown parameter of the zone", "", "", qr/"colour=red"/,
        base => "sandbox_zone z:1m colour=red; sandbox_runner unix:DIR/s; "
                . "sandbox_runner_key DIR/runner.key;");
refused("running=0", "", "", qr/running/,
        base => "sandbox_zone z:1m running=0; sandbox_runner unix:DIR/s; "
                . "sandbox_runner_key DIR/runner.key;");
refused("running=-1", "", "", qr/running/,
        base => "sandbox_zone z:1m running=-1; sandbox_runner unix:DIR/s; "
                . "sandbox_runner_key DIR/runner.key;");
refused("idle with a wrong unit", "", "", qr/idle/,
        base => "sandbox_zone z:1m idle=1k; sandbox_runner unix:DIR/s; "
                . "sandbox_runner_key DIR/runner.key;");

for my $name (qw(cpu_time memory wall_time output output_total command_size
                 processes open_files disk))
{
    refused("sandbox_$name 0", "", "sandbox_$name 0;", qr/sandbox_$name|"0"/);
    refused("sandbox_$name -1", "", "sandbox_$name -1;",
            qr/sandbox_$name|"-1"/);
    refused("sandbox_$name abc", "", "sandbox_$name abc;",
            qr/sandbox_$name|"abc"/);
}

# what the runner would raise or the agent refuse is refused here

for my $bound (["memory", "32m", "31m"], ["disk", "32m", "31m"],
               ["processes", "8", "7"], ["processes", "65536", "65537"],
               ["open_files", "16", "15"], ["pending", "1000", "1001"],
               ["file_size", "4096m", "4097m"], ["wall_time", "1d", "2d"])
{
    my ($name, $good, $bad) = @$bound;

    accepted("sandbox_$name $good", "", "sandbox_$name $good;");
    refused("sandbox_$name $bad", "", "sandbox_$name $bad;", qr/"$bad"/);
}

refused("a time with a size's unit", "", "sandbox_wall_time 10k;",
        qr/sandbox_wall_time|"10k"/);
refused("a size with a time's unit", "", "sandbox_memory 10s;",
        qr/sandbox_memory|"10s"/);
refused("a number with a unit", "", "sandbox_processes 10k;",
        qr/sandbox_processes|"10k"/);
refused("a command size beyond the wire", "", "sandbox_command_size 1g;",
        qr/sandbox_command_size|1g|512k/);
refused("an unknown backend", "", "sandbox_backend docker;", qr/"docker"/);

# the zone's numbers and times: the least and the most that each may be

my $runner = "sandbox_runner unix:DIR/s; sandbox_runner_key DIR/runner.key;";

for my $bound (["max", 1, 100000], ["per_tenant", 1, 100000],
               ["running", 1, 100000], ["queue", 0, 100000])
{
    my ($name, $least, $most) = @$bound;

    for my $good ($least, $most) {
        accepted("$name=$good", "", "",
                 base => "sandbox_zone z:1m $name=$good; $runner");
    }

    for my $bad ($least - 1, $most + 1, "", "x", "1k", "1.5",
                 "99999999999999999999")
    {
        refused("$name=$bad", "", "", qr/"\Q$name=$bad\E"/,
                base => "sandbox_zone z:1m $name=$bad; $runner");
    }
}

for my $good ("idle=1s", "idle=30d", "expire=10m", "expire=3650d",
              "idle=5s expire=5s", "expire=2h idle=1h", "idle=1m30s")
{
    accepted($good, "", "", base => "sandbox_zone z:1m $good; $runner");
}

for my $bad ("idle=0", "idle=999ms", "idle=31d", "idle=", "idle=x",
             "expire=0", "expire=3651d", "expire=", "expire=never",
             "expire=1k")
{
    refused($bad, "", "", qr/"\Q$bad\E"/,
            base => "sandbox_zone z:1m $bad; $runner");
}

for my $bad ("expire=9m", "idle=1h expire=30m", "expire=30m idle=1h") {
    refused("$bad: expires before it is idle", "", "",
            qr/"expire=\d+[mh]".*"idle="/,
            base => "sandbox_zone z:1m $bad; $runner");
}

# metrics

my $metrics = "server { listen unix:DIR/m.sock; location = /m { %s } }";

accepted("metrics", sprintf($metrics, "sandbox_metrics; allow 127.0.0.1; "
                                      . "deny all;"), "");
accepted("metrics below a server that serves",
         "server { listen unix:DIR/m.sock; sandbox on; "
         . "sandbox_jwt_secret_file DIR/jwt.key; "
         . "location = /m { sandbox_metrics; } location / { } }", "");
accepted("metrics alone", sprintf($metrics, "sandbox_metrics;"), "",
         on => "sandbox off;", base => "", jwt => "");
refused("metrics with a value", sprintf($metrics, "sandbox_metrics on;"), "",
        qr/sandbox_metrics/);
refused("metrics twice", sprintf($metrics, "sandbox_metrics; "
                                           . "sandbox_metrics;"), "",
        qr/sandbox_metrics.*duplicate/);
refused("metrics and another answer",
        sprintf($metrics, "proxy_pass http://127.0.0.1:1; sandbox_metrics;"),
        "", qr/sandbox_metrics/);
refused("metrics in a server", "sandbox_metrics;", "", qr/sandbox_metrics/);
refused("metrics where sandboxes are", "", "sandbox_metrics;",
        qr/sandbox_metrics|"sandbox"/);

done_testing();
