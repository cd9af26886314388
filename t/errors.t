# Every refusal: problem+json with a stable code; nginx's error_page does not
# touch it.

use FindBin;
use lib "$FindBin::Bin/lib";
use Sandbox 'no_plan';

run_tests();

__DATA__

=== TEST 1: http/error-shape, 401
--- token: none
--- command: id
--- problem: 401 unauthorized
--- response_headers_like
WWW-Authenticate: Bearer.*



=== TEST 2: http/error-shape, 403
--- claims: (permissions => ["other"])
--- command: id
--- problem: 403 insufficient_scope
--- response_headers_like
WWW-Authenticate: Bearer.*error="insufficient_scope".*



=== TEST 3: http/error-shape, 404 of an unknown path
--- call
GET v1/nothing
--- problem: 404 not_found



=== TEST 4: http/error-shape, 405
--- call
PUT v1/conversations/C/commands
{}
--- problem: 405 method_not_allowed
--- response_headers_like
Allow: .*POST.*



=== TEST 5: http/error-shape, 415
--- headers
Content-Type: text/plain
--- command: id
--- problem: 415 unsupported_media_type
--- json
detail ~ application/json



=== TEST 6: http/error-shape, 400
--- call
POST v1/conversations/C/commands
[]
--- problem: 400 bad_request



=== TEST 7: error_page does not touch it
--- config
    error_page 400 401 403 404 405 413 415 422 429 500 503 /page;
    location = /page {
        return 200 "a page\n";
    }
    location /sandbox/ {
        sandbox on;
        sandbox_jwt_secret_file $TEST_NGINX_SECRET;
        error_page 400 401 403 404 405 413 415 422 429 500 503 /page;
    }
--- token: none
--- command: id
--- problem: 401 unauthorized



=== TEST 8: errors of runner and agent
--- request eval
[map { "POST /sandbox/v1/conversations/errors/commands\n"
       . qq({"command":"mock: error=$_"}) }
 qw(bad_request gone command_id_reused command_too_large cwd_missing
    cwd_outside too_many_pending too_many_sandboxes spawn_failed
    at_capacity sandbox_failed disk_full)]
--- headers
Content-Type: application/json
--- error_code eval
[400, 410, 409, 413, 422, 422, 429, 429, 503, 503, 503, 507]
--- response_body_like eval
[map { qq("code":"$_") }
 qw(bad_request gone command_id_reused command_too_large cwd_missing
    cwd_outside too_many_pending too_many_sandboxes spawn_failed
    at_capacity sandbox_failed disk_full)]



=== TEST 9: http/limit-429, Retry-After as the runner says
--- command: mock: error=too_many_pending,17
--- problem: 429 too_many_pending
--- response_headers_like
Retry-After: 17



=== TEST 10: 503 always has Retry-After
--- command: mock: error=at_capacity
--- problem: 503 at_capacity
--- response_headers_like
Retry-After: [1-9][0-9]*



=== TEST 11: the runner's sentence reaches the client
--- command: mock: detail=The%20folder%20%22/x%22%20is%20%E2%80%9Cgone%E2%80%9D. error=cwd_missing
--- problem: 422 cwd_missing
--- json
detail = "The folder \"/x\" is “gone”."



=== TEST 12: a sentence that is not UTF-8 still gives JSON
--- command: mock: detail=bad%FFbytes error=cwd_missing
--- problem: 422 cwd_missing
--- json
detail ~ bad.*bytes



=== TEST 13: an ERROR with PING before it
--- command: mock: ping=5 error=at_capacity,3
--- problem: 503 at_capacity



=== TEST 14: the module uses its own table, not the runner's status
--- command: mock: status=200 error=at_capacity
--- error_code_like: ^5\d\d$



=== TEST 15: background is a boolean
--- command: id
--- fields
"background":1
--- problem: 400 bad_request



=== TEST 16: onDisconnect has two words
--- command: id
--- fields
"onDisconnect":"stop"
--- problem: 400 bad_request



=== TEST 17: the defaults of both are accepted
--- command: id
--- fields
"background":false,"onDisconnect":"continue"
--- json
exitCode = 0



=== TEST 18: stdinOpen is a boolean
--- command: id
--- fields
"stdinOpen":"yes"
--- problem: 400 bad_request



=== TEST 19: no path of the host in an answer
--- http_config
    sandbox_runner unix:/nonexistent/dir/runner.sock;
    sandbox_runner_key $TEST_NGINX_RUNNER_KEY;
--- command: id
--- problem: 503 runner_unreachable
--- json
detail ~ ^[^/]*$
--- response_headers_like
Retry-After: [1-9][0-9]*
--- no_error_log
[alert]
[emerg]



=== TEST 20: what nginx refuses is no error of the server
--- location: return 416;
--- call: GET v1/limits
--- problem: 416 bad_request



=== TEST 21: an error of the server
--- location: return 502;
--- call: GET v1/limits
--- problem: 502 internal
