# Conversations: their state, end, reset; whose they are; v1/limits.

use FindBin;
use lib "$FindBin::Bin/lib";
use Sandbox 'no_plan';

run_tests();

__DATA__

=== TEST 1: never used
--- call
GET v1/conversations/C
--- json
state = "none"
sandboxId absent



=== TEST 2: used
--- conversation: used
--- request eval
["POST /sandbox/v1/conversations/used/commands\n{\"command\":\"id\"}",
 "GET /sandbox/v1/conversations/used"]
--- headers
Content-Type: application/json
--- error_code eval
[200, 200]
--- response_body_like eval
["exitCode", qr/"state":"running".*"sandboxId":"sbx_[0-9a-f]{20}"|"sandboxId":"sbx_[0-9a-f]{20}".*"state":"running"/]



=== TEST 3: ended, and gone
--- request eval
["POST /sandbox/v1/conversations/ended/commands\n{\"command\":\"id\"}",
 "DELETE /sandbox/v1/conversations/ended",
 "GET /sandbox/v1/conversations/ended",
 "DELETE /sandbox/v1/conversations/ended"]
--- headers
Content-Type: application/json
--- error_code eval
[200, 204, 200, 204]
--- response_body_like eval
["exitCode", "^\$", '"state":"none"', "^\$"]



=== TEST 4: reset gives a new sandbox
--- call
POST v1/conversations/C/reset
--- json
. has sandboxId,state
sandboxId ~ ^sbx_[0-9a-f]{20}$
state = "running"



=== TEST 5: tenancy/other-id, a stranger sees nothing of it
--- request eval
["POST /sandbox/v1/conversations/shared/commands\n{\"command\":\"id\"}",
 "GET /sandbox/v1/conversations/shared",
 "GET /sandbox/v1/conversations/shared"]
--- more_headers eval
my $bob = "Authorization: Bearer " . Sandbox::token(sub => "bob") . "\n";
my $alice = "Authorization: Bearer " . Sandbox::token() . "\n";
["Content-Type: application/json\n$alice", $bob, $alice]
--- error_code eval
[200, 200, 200]
--- response_body_like eval
["exitCode", '"state":"none"', '"state":"running"']



=== TEST 6: the session key, as the design has it
--- location
sandbox_realm house;
--- conversation: one
--- command: x
--- claims: (sub => "alice")
--- json eval
"request.preamble.session = \""
. Sandbox::session_key("house", undef, undef, "alice", "one") . "\""



=== TEST 7: the session key with an issuer
--- location
sandbox_realm house;
--- conversation: one
--- command: x
--- claims: (sub => "alice", iss => "https://id.example/")
--- json eval
"request.preamble.session = \""
. Sandbox::session_key("house", "https://id.example/", undef, "alice", "one")
. "\""



=== TEST 8: an issuer that is empty is not one that is absent
--- location
sandbox_realm house;
--- conversation: one
--- command: x
--- claims: (sub => "alice", iss => "")
--- json eval
"request.preamble.session = \""
. Sandbox::session_key("house", "", undef, "alice", "one") . "\""



=== TEST 9: the realm is the configured issuer where none is named
--- location
sandbox_jwt_secret_file $TEST_NGINX_SECRET;
sandbox_jwt_issuer https://id.example/;
--- conversation: one
--- command: x
--- claims: (sub => "alice", iss => "https://id.example/")
--- json eval
"request.preamble.session = \""
. Sandbox::session_key("https://id.example/", "https://id.example/", undef,
                       "alice", "one") . "\""



=== TEST 10: the realm is the location's name where there is nothing else
--- conversation: one
--- command: x
--- json eval
"request.preamble.session = \""
. Sandbox::session_key("/sandbox/", undef, undef, "alice", "one") . "\""



=== TEST 11: names that join to the same text are different, alice + 1x
--- location
sandbox_realm house;
--- request eval
["POST /sandbox/v1/conversations/1x/commands\n{\"command\":\"x\"}",
 "POST /sandbox/v1/conversations/x/commands\n{\"command\":\"x\"}"]
--- more_headers eval
["Content-Type: application/json\nAuthorization: Bearer "
 . Sandbox::token(sub => "alice") . "\n",
 "Content-Type: application/json\nAuthorization: Bearer "
 . Sandbox::token(sub => "alice1") . "\n"]
--- error_code eval
[200, 200]
--- response_body_like eval
[Sandbox::session_key("house", undef, undef, "alice", "1x"),
 Sandbox::session_key("house", undef, undef, "alice1", "x")]



=== TEST 12: ids of conversations
--- request eval
[map { "GET /sandbox/v1/conversations/$_" }
 "a" x 128, "A-z_0.9:x", "a" x 129, "a%20b", "%2e", "%2e%2e", "a%2fb", "",
 "%C3%A9", "a%00b", "...", "a,b"]
--- error_code eval
[200, 200, 404, 404, 400, 400, 400, 404, 404, 400, 200, 404]
--- response_body_like eval
[("state") x 2, ("") x 8, "state", ""]



=== TEST 13: v1/limits
--- call
GET v1/limits
--- location
sandbox_wall_time 90s; sandbox_output 64k;
--- json
backend = "local"
timeoutSeconds = 90
outputBytes = 65536



=== TEST 14: v1/limits needs the token
--- token: none
--- call
GET v1/limits
--- problem: 401 unauthorized



=== TEST 15: the same conversation in two realms
--- config
    location /sandbox/ {
        sandbox on;
        sandbox_realm one;
        sandbox_jwt_secret_file $TEST_NGINX_SECRET;
    }
    location /other/ {
        sandbox on;
        sandbox_realm two;
        sandbox_jwt_secret_file $TEST_NGINX_SECRET;
    }
--- request eval
["POST /sandbox/v1/conversations/realms/commands\n{\"command\":\"x\"}",
 "GET /other/v1/conversations/realms",
 "GET /sandbox/v1/conversations/realms"]
--- headers
Content-Type: application/json
--- error_code eval
[200, 200, 200]
--- response_body_like eval
["exitCode", '"state":"none"', '"state":"running"']
