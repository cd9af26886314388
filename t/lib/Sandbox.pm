# Test::Nginx for the sandbox module: a mock runner for each file, tokens,
# short sections for requests and for JSON.
#
# A block may have, beside Test::Nginx's own sections:
#
#   --- command      the command text of a POST .../commands
#   --- fields       more members of that request, JSON without the braces
#   --- call         METHOD PATH[\nBODY], the path below /sandbox/
#   --- conversation its name (default: one of its own for each block)
#   --- claims       claims of the token, Perl: (sub => "bob")
#   --- token        the token itself; "none" sends no Authorization
#   --- headers      more request headers
#   --- location     more directives of the location
#   --- http         more directives of http{}
#   --- json         what the answer must say, a line each:
#                      path = JSON | path ~ REGEX | path absent |
#                      path has a,b,c (exactly these members)
#   --- problem      STATUS CODE of a problem+json
#   --- json_status  error_code with it (default 200)
#
# Each block also requires that no [alert], [crit] or [emerg] is logged.

package Sandbox;

use strict;
use warnings;

use Cwd qw(abs_path);
use File::Basename qw(dirname);
use File::Temp ();
use IO::Socket::INET ();
use IO::Socket::UNIX ();

our ($Dir, $MockPid, $PortName, $Top);

BEGIN {
    $Top = abs_path(dirname(__FILE__) . "/../..");
    $Dir = File::Temp->newdir("/tmp/sandbox-t.XXXXXX", CLEANUP => 1);
    chmod 0755, $Dir or die "chmod: $!";

    # a port of our own; Test::Nginx's random ones collide now and then, and
    # those that the kernel gives away are for others' connections as well.
    # nginx leaves it for a moment with each block: a name, kept until this
    # process ends, says to other tests that it is taken (gateway.py, too).

    my $probe;

    for (1 .. 1000) {
        my $port = 10000 + int rand 22000;

        $PortName = IO::Socket::UNIX->new(
            Local => "\0sandbox-test-port-$port", Listen => 1) or next;
        $probe = IO::Socket::INET->new(Listen => 1, LocalPort => $port);
        last if $probe;
    }

    die "no port: $!" unless $probe;
    $ENV{TEST_NGINX_SERVER_PORT} = $ENV{TEST_NGINX_CLIENT_PORT}
        = $probe->sockport;
    close $probe;

    $ENV{TEST_NGINX_SERVROOT} = "$Dir/root";
    $ENV{TEST_NGINX_BINARY} ||= "/usr/sbin/nginx";
    $ENV{TEST_NGINX_LOAD_MODULES}
        ||= ($ENV{BUILD} || "$Top/build") . "/ngx_http_sandbox_module.so";
    $ENV{TEST_NGINX_SLEEP} ||= 0.02;
    $ENV{TEST_NGINX_FAST_SHUTDOWN} = 1
        unless defined $ENV{TEST_NGINX_FAST_SHUTDOWN};
    $ENV{TEST_NGINX_TIMEOUT} ||= 60;

    $ENV{TEST_NGINX_DIR} = "$Dir";
    $ENV{TEST_NGINX_RUNNER} = "$Dir/runner.sock";
    $ENV{TEST_NGINX_RUNNER_KEY} = "$Dir/runner.key";
    $ENV{TEST_NGINX_SECRET} = "$Dir/jwt.key";
    $ENV{TEST_NGINX_PUBLIC} = "$Dir/public.pem";

    my $own = ($ENV{BUILD} || "$Top/build") . "/test-nginx/usr/share/perl5";
    unshift @INC, $own if -d $own;

    -e $ENV{TEST_NGINX_LOAD_MODULES}
        or die "no $ENV{TEST_NGINX_LOAD_MODULES}, run make first\n";
}

use Test::Nginx::Socket -Base;

use Digest::SHA qw(hmac_sha256 sha256_hex);
use JSON::PP ();
use MIME::Base64 qw(encode_base64url);
use POSIX ();
use Time::HiRes ();

our @EXPORT = qw(token token_raw rs256_token secret session_key write_file
    start_mock stop_mock);

our $Secret = "the secret of these tests, of more than 32 bytes";
our $Json = JSON::PP->new->utf8->canonical->allow_nonref;
our $Number = 0;
our $Conversation;

sub write_file ($$;$) {
    my ($name, $data, $mode) = @_;

    my $path = $name =~ m{^/} ? $name : "$Dir/$name";
    open my $out, ">:raw", $path or die "$path: $!";
    print $out $data;
    close $out or die "$path: $!";
    chmod $mode // 0600, $path;
    return $path;
}

sub secret () { return $Secret }

sub token_raw ($$;$) {
    my ($header, $payload, $key) = @_;

    my $text = encode_base64url($header) . "." . encode_base64url($payload);
    return $text . "." . encode_base64url(hmac_sha256($text, $key // $Secret));
}

sub default_claims (@) {
    return { sub => "alice", exp => time + 3600,
             permissions => ["sandbox:execute"], @_ };
}

sub token (@) {
    my $claims = default_claims(@_);

    # a claim given as undef is left out; \undef is null
    for my $name (keys %$claims) {
        delete $claims->{$name} unless defined $claims->{$name};
        $claims->{$name} = undef
            if ref $claims->{$name} eq "REF" || (ref $claims->{$name}
               eq "SCALAR" && !defined ${$claims->{$name}});
    }

    return token_raw('{"alg":"HS256","typ":"JWT"}', $Json->encode($claims));
}

sub rs256_token (@) {
    my $claims = default_claims(@_);

    my $text = encode_base64url('{"alg":"RS256","typ":"JWT"}') . "."
               . encode_base64url($Json->encode($claims));
    my $in = write_file("to-sign", $text);
    my $sign = `openssl dgst -sha256 -sign $Dir/private.pem $in`;
    die "openssl could not sign" if $?;
    return $text . "." . encode_base64url($sign);
}

# The session key as DESIGN has it; an absent part is undef.

sub session_key (@) {
    return sha256_hex(join "", map {
        defined $_ ? pack("N", length $_) . $_ : pack("N", 0xffffffff)
    } @_);
}

sub start_mock () {
    defined($MockPid = fork) or die "fork: $!";

    if (!$MockPid) {
        open STDOUT, ">&", \*STDERR;
        exec "python3", "$Top/t/lib/mock_runner.py", "--socket",
             $ENV{TEST_NGINX_RUNNER}, "--key-file",
             $ENV{TEST_NGINX_RUNNER_KEY}, "--log", "$Dir/mock.log"
            or POSIX::_exit(127);
    }

    for (1 .. 5000) {
        return if -S $ENV{TEST_NGINX_RUNNER};
        Time::HiRes::sleep(0.02);
    }

    die "the mock runner did not start";
}

sub stop_mock () {
    return unless $MockPid;
    kill "TERM", $MockPid;
    waitpid $MockPid, 0;
    undef $MockPid;
    unlink $ENV{TEST_NGINX_RUNNER};
}

write_file("runner.key", "5a" x 32 . "\n");
write_file("jwt.key", $Secret);

if (system("openssl genpkey -quiet -algorithm RSA -pkeyopt rsa_keygen_bits:2048"
           . " -out $Dir/private.pem 2>/dev/null"
           . " || openssl genrsa -out $Dir/private.pem 2048 2>/dev/null"))
{
    die "openssl could not make a key";
}

system("openssl pkey -in $Dir/private.pem -pubout -out $Dir/public.pem") == 0
    or die "openssl could not write the public key";

start_mock();

add_cleanup_handler(sub { stop_mock() });

END {
    my $status = $?;
    if ($MockPid) {
        kill "TERM", $MockPid;
        waitpid $MockPid, 0;
    }
    $? = $status;
}

no_long_string();
no_shuffle();
no_root_location();
log_level("info");

sub prepare ($) {
    my ($block) = @_;

    $Number++;

    my $conversation = $block->conversation;
    $conversation = "c$Number" unless defined $conversation;
    chomp $conversation;

    my $http = join "", map { $_ // "" } $block->http_config, $block->http;

    if (!defined $block->http_config) {
        $http = <<'_EOC_' . $http;
    sandbox_zone sandbox:1m;
    sandbox_runner unix:$TEST_NGINX_RUNNER;
    sandbox_runner_key $TEST_NGINX_RUNNER_KEY;
_EOC_
    }

    $block->set_value("http_config", $http);

    if (!defined $block->config) {
        my $location = $block->location // "";
        my $key = $location =~ /sandbox_jwt_/ ? ""
                  : 'sandbox_jwt_secret_file $TEST_NGINX_SECRET;';

        $block->set_value("config", <<"_EOC_");
    location /sandbox/ {
        sandbox on;
        $key
        $location
    }
_EOC_
    }

    # a change of http{} alone has to restart nginx as well

    $block->set_value("config", $block->config . "    # "
                      . sha256_hex($http) . "\n");

    my $headers = $block->headers // "";
    $headers .= "\n" if $headers ne "" && $headers !~ /\n\z/;

    if (defined $block->command || defined $block->fields) {
        my $command = $block->command;
        my @members;

        if (defined $command) {
            chomp $command;
            push @members, '"command":' . $Json->encode($command);
        }

        push @members, $block->fields if defined $block->fields;
        my $text = "{" . join(",", @members) . "}";
        $text =~ s/\n\s*//g;

        $block->set_value("call", "POST v1/conversations/$conversation/"
                          . "commands" . ($block->arguments // "")
                          . "\n$text");
    }

    if (defined(my $call = $block->call)) {
        $call =~ s{^(\S+) }{$1 /sandbox/};
        $call =~ s{/C(?=[/?\s]|\z)}{/$conversation}g;
        chomp $call unless $call =~ /\n.*\n/s;

        # neither the request line's end nor a body gets bytes of its own
        $block->set_value("request", $call);
        $headers .= "Content-Type: application/json\n"
            if $call =~ /\n./s && $headers !~ /^Content-Type:/mi;
    }

    my $token = $block->token;

    if (!defined $token) {
        my @claims = defined $block->claims ? eval $block->claims : ();
        die $@ if $@;
        $token = token(@claims);
    }

    chomp $token;
    $headers .= "Authorization: Bearer $token\n"
        unless $token eq "none" || $headers =~ /^Authorization:/mi;

    $block->set_value("more_headers", $headers)
        unless defined $block->more_headers;

    if (defined(my $problem = $block->problem)) {
        my ($status, $code) = split " ", $problem;
        $block->set_value("error_code", $status);
        $block->set_value("json", ($block->json // "")
            . "\nstatus = $status\ncode = \"$code\"\ntitle ~ \\w"
            . "\ndetail ~ \\w\ntype ~ \\w");
        $block->set_value("response_headers_like",
            "Content-Type: application/problem\\+json\n"
            . "Cache-Control: .*no-store.*\n"
            . "X-Content-Type-Options: nosniff\n"
            . ($block->response_headers_like // ""));

    } elsif (defined $block->json && !defined $block->error_code) {
        $block->set_value("error_code", $block->json_status // 200);
    }

    $block->set_value("no_error_log", "[alert]\n[crit]\n[emerg]")
        unless defined $block->no_error_log;
}

sub at ($$) {
    my ($data, $path) = @_;

    return ($data, 1) if $path eq ".";

    for my $name (split /\./, $path) {
        if (ref $data eq "HASH" && exists $data->{$name}) {
            $data = $data->{$name};
        } elsif (ref $data eq "ARRAY" && $name =~ /^\d+$/ && $name < @$data) {
            $data = $data->[$name];
        } else {
            return (undef, 0);
        }
    }

    return ($data, 1);
}

sub check_json ($$$) {
    my ($name, $body, $checks) = @_;

    my $data = eval { $Json->decode($body) };

    if ($@ || !ref $data) {
        fail("$name - the body is JSON");
        diag("body: $body");
        return;
    }

    for my $line (split /\n/, $checks) {
        $line =~ s/^\s+|\s+$//g;
        next if $line eq "";

        my ($path, $how, $rest) = split " ", $line, 3;
        my ($value, $there) = at($data, $path);

        # "request.": the request as the mock saw it, JSON on stdout

        if ($path =~ s/^request\.//) {
            my $request = eval { JSON::PP->new->decode($data->{stdout}) };
            ($value, $there) = at($request, $path);
        }

        my $good;

        if ($how eq "=") {
            $good = $there && $Json->encode($value)
                              eq $Json->encode($Json->decode($rest));
        } elsif ($how eq "~") {
            my $text = ref $value ? $Json->encode($value) : $value;
            $good = $there && defined $text && $text =~ /$rest/;
        } elsif ($how eq "absent") {
            $good = !$there;
        } elsif ($how eq "has") {
            $good = ref $value eq "HASH" && join(",", sort keys %$value)
                                            eq join(",", sort split /,/, $rest);
        } else {
            die "$name - json: what is \"$line\"?";
        }

        ok($good, "$name - $line");
        diag("got: " . ($there ? substr($Json->encode($value), 0, 500)
                               : "nothing")
             . (length $body < 2000 ? "\nin: $body" : "")) unless $good;
    }
}

# After a request with a body nginx lets its client go before it writes its log:
# what must be in a log is waited for, where Test::Nginx looks once, soon.

sub await_lines ($$$) {
    my ($path, $from, $patterns) = @_;

    $patterns = [split /\n+/, $patterns] unless ref $patterns;
    $patterns = [$patterns] unless ref $patterns eq "ARRAY";

    for (1 .. 3000) {
        my $text = "";

        if (open my $in, "<", $path) {
            seek $in, $from, 0;
            local $/;
            $text = <$in> // "";
        }

        last unless grep {
            defined && $text !~ (ref $_ ? $_ : qr/\Q$_\E/)
        } @$patterns;
        Time::HiRes::sleep(0.02);
    }
}

{
    no warnings "redefine";

    my $access = \&Test::Nginx::Socket::check_access_log;
    my $error = \&Test::Nginx::Socket::check_error_log;

    *Test::Nginx::Socket::check_access_log = sub ($$$) {
        await_lines($Test::Nginx::Util::AccLogFile, 0, $_[0]->access_log)
            if defined $_[0]->access_log;
        $access->(@_);
    };

    *Test::Nginx::Socket::check_error_log = sub ($$$$) {
        await_lines($Test::Nginx::Util::ErrLogFile,
                    $Test::Nginx::Util::ErrLogFilePos, $_[0]->error_log)
            if defined $_[0]->error_log;
        $error->(@_);
    };
}

add_block_preprocessor(sub { prepare($_[0]) });

add_response_body_check(sub {
    my ($block, $body, $index, $repeated, $dry_run) = @_;

    check_json($block->name, $body, $block->json)
        if defined $block->json && !$dry_run;
});

1;
