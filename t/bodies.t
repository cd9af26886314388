# Bodies and what nginx does around them: its own limit is not in the way, and
# nobody is asked for a body that is thrown away.

use FindBin;
use lib "$FindBin::Bin/lib";
use Sandbox 'no_plan';

repeat_each(1);
run_tests();

__DATA__

=== TEST 1: client_max_body_size is not ours
--- location
client_max_body_size 1k;
--- command eval
"mock: stdout=" . "x" x 5000
--- json
exitCode = 0



=== TEST 2: nor is it in the way of a subrequest: auth_request says yes
--- config
    location /sandbox/ {
        sandbox on;
        sandbox_jwt_secret_file $TEST_NGINX_SECRET;
        auth_request /ask;
    }

    location = /ask {
        internal;
        client_max_body_size 1k;
        return 204;
    }
--- command eval
"mock: stdout=" . "x" x 5000
--- json
exitCode = 0



=== TEST 3: auth_request says no
--- config
    location /sandbox/ {
        sandbox on;
        sandbox_jwt_secret_file $TEST_NGINX_SECRET;
        auth_request /ask;
    }

    location = /ask {
        internal;
        client_max_body_size 1k;
        return 403;
    }
--- command eval
"mock: stdout=" . "x" x 5000
--- problem: 403 forbidden



=== TEST 4: auth_request asks another server
--- config
    location /sandbox/ {
        sandbox on;
        sandbox_jwt_secret_file $TEST_NGINX_SECRET;
        auth_request /ask;
    }

    location = /ask {
        internal;
        client_max_body_size 1k;
        proxy_pass http://127.0.0.1:$TEST_NGINX_SERVER_PORT/answer;
        proxy_pass_request_body off;
        proxy_set_header Content-Length "";
    }

    location = /answer {
        if ($http_content_length) {
            return 403;
        }

        return 204;
    }
--- command eval
"mock: stdout=" . "x" x 5000
--- json
exitCode = 0



=== TEST 5: other locations keep their limit
--- config
    location /sandbox/ {
        sandbox on;
        sandbox_jwt_secret_file $TEST_NGINX_SECRET;
    }

    location /other/ {
        auth_request /ask;
        client_max_body_size 10k;
        return 200 "in";
    }

    location = /ask {
        internal;
        client_max_body_size 1k;
        return 204;
    }
--- request eval
"POST /other/\n" . "x" x 20000
--- error_code: 413



=== TEST 6: nobody asks for a body that is refused
--- raw_request eval
"POST /sandbox/v1/conversations/c/commands HTTP/1.1\r
Host: localhost\r
Authorization: Bearer " . Sandbox::token(permissions => []) . "\r
Content-Type: application/json\r
Content-Length: 5000\r
Expect: 100-continue\r
Connection: close\r
\r
"
--- ignore_response
--- error_code: 403
--- raw_response_headers_unlike: 100 Continue



=== TEST 7: nor where the path is wrong
--- raw_request eval
"POST /sandbox/v1/nothing HTTP/1.1\r
Host: localhost\r
Authorization: Bearer " . Sandbox::token() . "\r
Content-Type: application/json\r
Content-Length: 5000\r
Expect: 100-continue\r
Connection: close\r
\r
"
--- error_code: 404
--- raw_response_headers_unlike: 100 Continue
