# The module loads, serves nothing unless told to, and works with two lines.

use FindBin;
use lib "$FindBin::Bin/lib";
use Sandbox 'no_plan';

run_tests();

__DATA__

=== TEST 1: loaded and not used
--- http_config
--- config
    location /sandbox/ {
        return 200 "plain\n";
    }
--- call
GET health
--- response_body
plain



=== TEST 2: off by default
--- config
    location /sandbox/ {
        sandbox_jwt_secret_file $TEST_NGINX_SECRET;
    }
--- call
GET health
--- error_code: 404



=== TEST 3: admin/minimal, two directives are enough
--- http_config
    sandbox_runner unix:$TEST_NGINX_RUNNER;
    sandbox_runner_key $TEST_NGINX_RUNNER_KEY;
--- config
    location /sandbox/ {
        sandbox on;
        sandbox_jwt_secret_file $TEST_NGINX_SECRET;
    }
--- command: mock: stdout=hello%0A
--- json
stdout = "hello\n"
exitCode = 0



=== TEST 4: health needs no token
--- token: none
--- call
GET health
--- json
. has status
status ~ ^(ready|initializing)$
--- response_headers_like
Content-Type: application/json.*
Cache-Control: .*no-store.*
X-Content-Type-Options: nosniff



=== TEST 5: health by HEAD
--- token: none
--- call
HEAD health
--- error_code: 200
--- response_body chomp



=== TEST 6: a location of its own below another prefix
--- config
    location = /api/health {
        return 200 "other\n";
    }
    location /api/box/ {
        sandbox on;
        sandbox_jwt_secret_file $TEST_NGINX_SECRET;
    }
--- request
GET /api/box/health
--- error_code: 200
--- response_body_like: "status"



=== TEST 7: switched off for one location, on for the server
--- config
    sandbox on;
    sandbox_jwt_secret_file $TEST_NGINX_SECRET;
    location /sandbox/ {
    }
    location /plain/ {
        sandbox off;
        return 200 "plain\n";
    }
--- request eval
["GET /plain/health", "GET /sandbox/health"]
--- error_code eval
[200, 200]
--- response_body_like eval
["^plain\$", "status"]
