# What nginx has for access beside the token: satisfy, allow and deny,
# passwords, auth_request, limit_req, error_page.  Whatever they say, nothing
# runs without a token, and what they refuse is refused with a token, too.

use FindBin;
use lib "$FindBin::Bin/lib";
use Sandbox 'no_plan';

our $Basic = "Authorization: Basic YWxpY2U6cHc=";       # alice:pw

write_file("htpasswd", "alice:{PLAIN}pw\n", 0644);

run_tests();

__DATA__

=== TEST 1: satisfy all, allowed
--- location
satisfy all;
allow all;
--- command: mock: stdout=ran
--- json
stdout = "ran"



=== TEST 2: satisfy all, denied in spite of the token
--- location
deny all;
--- command: mock: stdout=ran
--- problem: 403 forbidden



=== TEST 3: satisfy all, allowed, no token
--- location
allow all;
--- token: none
--- command: id
--- problem: 401 unauthorized
--- response_headers_like
WWW-Authenticate: ^Bearer realm="[^"]*"$



=== TEST 4: satisfy any, the token is enough
--- location
satisfy any;
deny all;
--- command: mock: stdout=ran
--- json
stdout = "ran"



=== TEST 5: auth/satisfy-any-is-no-way-in, an address is not enough
--- location
satisfy any;
allow all;
--- token: none
--- command: id
--- problem: 401 unauthorized
--- response_headers_like
WWW-Authenticate: Bearer .*



=== TEST 6: satisfy any, neither
--- location
satisfy any;
deny all;
--- token: none
--- command: id
--- problem: 401 unauthorized
--- response_headers_like
WWW-Authenticate: Bearer .*



=== TEST 7: satisfy any, denied, a bad token
--- location
satisfy any;
deny all;
--- token: a.b.c
--- command: id
--- problem: 401 invalid_token
--- response_headers_like
WWW-Authenticate: Bearer .*error="invalid_token".*



=== TEST 8: satisfy any, allowed, a token without the permission
--- location
satisfy any;
allow all;
--- claims: (permissions => ["other"])
--- command: id
--- problem: 403 insufficient_scope
--- response_headers_like
WWW-Authenticate: Bearer .*error="insufficient_scope".*scope="sandbox:execute".*



=== TEST 9: satisfy any, denied, a token without the permission
--- location
satisfy any;
deny all;
--- claims: (permissions => ["other"])
--- command: id
--- error_code: 403
--- response_body_like: insufficient_scope



=== TEST 10: satisfy any, a password is not enough
--- location
satisfy any;
auth_basic people;
auth_basic_user_file $TEST_NGINX_DIR/htpasswd;
--- token: none
--- headers eval: $::Basic
--- command: id
--- problem: 401 unauthorized
--- response_headers_like
WWW-Authenticate: Bearer realm="[^"]*"



=== TEST 11: satisfy any, a token instead of a password
--- location
satisfy any;
auth_basic people;
auth_basic_user_file $TEST_NGINX_DIR/htpasswd;
--- command: mock: stdout=ran
--- json
stdout = "ran"
--- no_error_log
[alert]
[crit]
[emerg]



=== TEST 12: satisfy any, a bad token and no password
--- location
satisfy any;
auth_basic people;
auth_basic_user_file $TEST_NGINX_DIR/htpasswd;
--- token: a.b.c
--- command: id
--- problem: 401 invalid_token



=== TEST 13: satisfy all, one header can't be both
--- location
auth_basic people;
auth_basic_user_file $TEST_NGINX_DIR/htpasswd;
--- headers eval: $::Basic
--- token: none
--- command: mock: stdout=ran
--- error_code: 401
--- response_body_unlike: ran



=== TEST 14: satisfy all, a token does not make up for the password
--- location
auth_basic people;
auth_basic_user_file $TEST_NGINX_DIR/htpasswd;
--- command: mock: stdout=ran
--- error_code: 401
--- response_body_unlike: ran



=== TEST 15: health has no token, and keeps to allow and deny
--- location
deny all;
--- token: none
--- call
GET health
--- error_code: 403



=== TEST 16: health, satisfy any
--- location
satisfy any;
deny all;
--- token: none
--- call
GET health
--- error_code: 403



=== TEST 17: auth_request says yes
--- config
    location = /yes { return 204; }
    location /sandbox/ {
        auth_request /yes;
        sandbox on;
        sandbox_jwt_secret_file $TEST_NGINX_SECRET;
    }
--- command: mock: stdout=ran
--- json
stdout = "ran"



=== TEST 18: auth_request says yes, no token
--- config
    location = /yes { return 204; }
    location /sandbox/ {
        auth_request /yes;
        sandbox on;
        sandbox_jwt_secret_file $TEST_NGINX_SECRET;
    }
--- token: none
--- command: id
--- problem: 401 unauthorized



=== TEST 19: auth_request says yes, satisfy any, no token
--- config
    location = /yes { return 204; }
    location /sandbox/ {
        satisfy any;
        auth_request /yes;
        sandbox on;
        sandbox_jwt_secret_file $TEST_NGINX_SECRET;
    }
--- token: none
--- command: id
--- problem: 401 unauthorized



=== TEST 20: auth_request says no
--- config
    location = /no { return 403; }
    location /sandbox/ {
        auth_request /no;
        sandbox on;
        sandbox_jwt_secret_file $TEST_NGINX_SECRET;
    }
--- command: mock: stdout=ran
--- problem: 403 forbidden



=== TEST 21: auth_request says no, satisfy any, a good token
--- config
    location = /no { return 403; }
    location /sandbox/ {
        satisfy any;
        auth_request /no;
        sandbox on;
        sandbox_jwt_secret_file $TEST_NGINX_SECRET;
    }
--- command: mock: stdout=ran
--- json
stdout = "ran"



=== TEST 22: auth_request fails
--- config
    location = /broken { return 500; }
    location /sandbox/ {
        auth_request /broken;
        sandbox on;
        sandbox_jwt_secret_file $TEST_NGINX_SECRET;
    }
--- command: mock: stdout=ran
--- error_code: 500
--- response_body_unlike: ran
--- no_error_log
[alert]
[crit]
[emerg]



=== TEST 23: the module as somebody else's auth_request, a good token
--- config
    location /sandbox/ {
        sandbox on;
        sandbox_jwt_secret_file $TEST_NGINX_SECRET;
    }
    location = /picture {
        auth_request /sandbox/v1/limits;
        empty_gif;
    }
--- request
GET /picture
--- response_headers
Content-Type: image/gif
--- response_body_like: GIF89a



=== TEST 24: the module as somebody else's auth_request, no token
--- config
    location /sandbox/ {
        sandbox on;
        sandbox_jwt_secret_file $TEST_NGINX_SECRET;
    }
    location = /picture {
        auth_request /sandbox/v1/limits;
        empty_gif;
    }
--- token: none
--- request
GET /picture
--- error_code: 401



=== TEST 25: the module as somebody else's auth_request, no permission
--- config
    location /sandbox/ {
        sandbox on;
        sandbox_jwt_secret_file $TEST_NGINX_SECRET;
    }
    location = /picture {
        auth_request /sandbox/v1/limits;
        empty_gif;
    }
--- claims: (permissions => [])
--- request
GET /picture
--- error_code: 403



=== TEST 26: limit_req by user
--- http
    limit_req_zone $sandbox_user zone=user26:1m rate=1r/m;
--- location
limit_req zone=user26;
limit_req_status 429;
--- claims: (sub => "carol")
--- request eval
["GET /sandbox/v1/limits", "GET /sandbox/v1/limits"]
--- error_code eval
[200, 429]



=== TEST 27: limit_req by user, another user is not limited with her
--- http
    limit_req_zone $sandbox_user zone=user26:1m rate=1r/m;
--- location
limit_req zone=user26;
limit_req_status 429;
# the same zone as before, of the same nginx or a new one
--- claims: (sub => "dave")
--- call
GET v1/limits
--- error_code: 200



=== TEST 28: limit_req by user, those without a token are limited together
--- http
    limit_req_zone $sandbox_user zone=user28:1m rate=1r/m;
--- location
limit_req zone=user28;
limit_req_status 429;
--- token: none
--- request eval
["GET /sandbox/v1/limits", "GET /sandbox/v1/limits"]
--- error_code eval
[401, 429]



=== TEST 29: limit_req by a forged token's user does not limit the real one
--- http
    limit_req_zone $sandbox_user zone=user29:1m rate=1r/m;
--- config
    location /sandbox/ {
        limit_req zone=user29;
        limit_req_status 429;
        sandbox on;
        sandbox_jwt_secret_file $TEST_NGINX_SECRET;
    }
--- token eval
Sandbox::token_raw('{"alg":"HS256"}',
    '{"sub":"erin","exp":9999999999,"permissions":["sandbox:execute"]}',
    "another secret that has more than 32 bytes")
--- request eval
["GET /sandbox/v1/limits", "GET /sandbox/v1/limits"]
--- error_code eval
[401, 429]
--- access_log eval
qr/GET/
--- no_error_log
erin
[alert]
[crit]
[emerg]



=== TEST 30: error_page takes none of ours, also as a named location
--- config
    location @page { return 200 "a page\n"; }
    location /sandbox/ {
        sandbox on;
        sandbox_jwt_secret_file $TEST_NGINX_SECRET;
        error_page 401 403 404 405 =200 @page;
    }
--- token: none
--- request eval
["GET /sandbox/v1/limits", "POST /sandbox/v1/conversations/C/commands\n{}",
 "GET /sandbox/nothing", "OPTIONS /sandbox/v1/limits"]
--- error_code eval
[401, 401, 401, 401]
--- response_body_like eval
["unauthorized", "unauthorized", "unauthorized", "unauthorized"]



=== TEST 31: error_page does not take what nginx refuses here either
--- config
    location /page/ { return 200 "a page\n"; }
    location /sandbox/ {
        deny all;
        sandbox on;
        sandbox_jwt_secret_file $TEST_NGINX_SECRET;
        error_page 403 =200 /page/;
    }
--- command: mock: stdout=ran
--- problem: 403 forbidden



=== TEST 32: error_page of another location leads in, the token still counts
--- config
    location /elsewhere/ {
        error_page 404 = /sandbox/v1/limits;
        return 404;
    }
    location /sandbox/ {
        sandbox on;
        sandbox_jwt_secret_file $TEST_NGINX_SECRET;
    }
--- token: none
--- request
GET /elsewhere/x
--- error_code: 401
--- response_body_like: unauthorized



=== TEST 33: a rewrite leads in, the token still counts
--- config
    rewrite ^/run/(.*)$ /sandbox/v1/conversations/$1/commands;
    location /sandbox/ {
        sandbox on;
        sandbox_jwt_secret_file $TEST_NGINX_SECRET;
    }
--- token: none
--- request
POST /run/C
{"command":"id"}
--- error_code: 401
--- response_body_like: unauthorized



=== TEST 34: from one policy into a stricter one
--- config
    location /lax/ {
        sandbox on;
        sandbox_jwt_secret_file $TEST_NGINX_SECRET;
        # known here already, by another policy
        if ($sandbox_user = "alice") {
            rewrite ^/lax/(.*)$ /strict/$1 last;
        }
    }
    location /strict/ {
        sandbox on;
        sandbox_jwt_secret_file $TEST_NGINX_SECRET;
        sandbox_jwt_audience strict;
    }
--- request
GET /lax/v1/limits
--- error_code: 401
--- response_body_like: invalid_token



=== TEST 35: auth/options-no-bypass, methods without a token
--- token: none
--- request eval
["OPTIONS /sandbox/v1/conversations/C/commands",
 "HEAD /sandbox/v1/conversations/C/commands",
 "OPTIONS /sandbox/v1/conversations/C",
 "HEAD /sandbox/v1/conversations/C",
 "HEAD /sandbox/v1/limits", "PROPFIND /sandbox/v1/limits"]
--- error_code eval
[401, 401, 401, 401, 401, 401]



=== TEST 36: OPTIONS with a token is no method of ours
--- call
OPTIONS v1/conversations/C/commands
--- problem: 405 method_not_allowed



=== TEST 37: HEAD without a token has no body
--- token: none
--- call
HEAD v1/limits
--- error_code: 401
--- response_body:
--- response_headers_like
WWW-Authenticate: Bearer .*



=== TEST 38: CORS by add_header, a preflight runs nothing
--- config
    location /sandbox/ {
        if ($request_method = OPTIONS) {
            add_header Access-Control-Allow-Origin https://app.example always;
            return 204;
        }
        sandbox on;
        sandbox_jwt_secret_file $TEST_NGINX_SECRET;
    }
--- token: none
--- call
OPTIONS v1/conversations/C/commands
--- error_code: 204
--- response_headers
Access-Control-Allow-Origin: https://app.example



=== TEST 39: a location that is internal stays so
--- config
    location /sandbox/ {
        internal;
        sandbox on;
        sandbox_jwt_secret_file $TEST_NGINX_SECRET;
    }
--- command: mock: stdout=ran
--- error_code: 404
--- response_body_unlike: ran



=== TEST 40: sandbox_permission_read looks at a conversation
--- location
sandbox_permission_read sandbox:read;
--- claims: (permissions => ["sandbox:read"])
--- call
GET v1/conversations/C
--- json
state = "none"



=== TEST 41: sandbox_permission_read, HEAD
--- location
sandbox_permission_read sandbox:read;
--- claims: (permissions => ["sandbox:read"])
--- call
HEAD v1/conversations/C
--- error_code: 200
--- response_body:



=== TEST 42: sandbox_permission_read runs nothing
--- location
sandbox_permission_read sandbox:read;
--- claims: (permissions => ["sandbox:read"])
--- command: id
--- problem: 403 insufficient_scope
--- response_headers_like
WWW-Authenticate: Bearer .*error="insufficient_scope".*scope="sandbox:execute".*



=== TEST 43: sandbox_permission_read ends and resets nothing, sees no limits
--- location
sandbox_permission_read sandbox:read;
--- claims: (permissions => ["sandbox:read"])
--- request eval
["DELETE /sandbox/v1/conversations/C",
 "POST /sandbox/v1/conversations/C/reset",
 "OPTIONS /sandbox/v1/conversations/C"]
--- error_code eval
[403, 403, 403]



=== TEST 44: sandbox_permission_read, those who may run may look
--- location
sandbox_permission_read sandbox:read;
--- claims: (permissions => ["sandbox:execute"])
--- call
GET v1/conversations/C
--- json
state = "none"



=== TEST 45: sandbox_permission_read, neither
--- location
sandbox_permission_read sandbox:read;
--- claims: (permissions => ["sandbox:reader", "sandbox", "read"])
--- call
GET v1/conversations/C
--- problem: 403 insufficient_scope



=== TEST 46: sandbox_permission_read is not set
--- claims: (permissions => ["sandbox:read"])
--- call
GET v1/conversations/C
--- problem: 403 insufficient_scope



=== TEST 47: limit_req by tenant, one tenant's users share it
--- http
    limit_req_zone $sandbox_tenant zone=tenant47:1m rate=1r/m;
--- location
sandbox_jwt_secret_file $TEST_NGINX_SECRET;
sandbox_tenant_claim org;
limit_req zone=tenant47;
limit_req_status 429;
--- claims: (org => "acme")
--- request eval
["GET /sandbox/v1/limits", "GET /sandbox/v1/limits"]
--- more_headers eval
["Authorization: Bearer " . Sandbox::token(org => "acme"),
 "Authorization: Bearer " . Sandbox::token(org => "acme", sub => "bob")]
--- error_code eval
[200, 429]



=== TEST 48: limit_req by tenant, another tenant has its own
--- http
    limit_req_zone $sandbox_tenant zone=tenant48:1m rate=1r/m;
--- location
sandbox_jwt_secret_file $TEST_NGINX_SECRET;
sandbox_tenant_claim org;
limit_req zone=tenant48;
limit_req_status 429;
--- request eval
["GET /sandbox/v1/limits", "GET /sandbox/v1/limits"]
--- more_headers eval
["Authorization: Bearer " . Sandbox::token(org => "acme"),
 "Authorization: Bearer " . Sandbox::token(org => "umbrella")]
--- error_code eval
[200, 200]



=== TEST 49: $sandbox_user and $sandbox_tenant in the rewrite phase
--- config
    location /sandbox/ {
        set $before "$sandbox_tenant/$sandbox_user";
        add_header X-Before $before always;
        sandbox on;
        sandbox_jwt_secret_file $TEST_NGINX_SECRET;
        sandbox_tenant_claim org;
    }
--- claims: (org => "acme")
--- call
GET v1/limits
--- error_code: 200
--- response_headers
X-Before: acme/alice



=== TEST 50: $sandbox_user and $sandbox_tenant of a refused request
--- config
    location /sandbox/ {
        set $before "$sandbox_tenant/$sandbox_user";
        add_header X-Before $before always;
        add_header X-After "$sandbox_tenant/$sandbox_user" always;
        sandbox on;
        sandbox_jwt_secret_file $TEST_NGINX_SECRET;
        sandbox_tenant_claim org;
    }
--- claims: (permissions => ["other"], org => "acme")
--- call
GET v1/limits
--- error_code: 403
--- response_headers
X-Before: -/-
X-After: -/-



=== TEST 51: $sandbox_user of a token that is no good
--- config
    location /sandbox/ {
        set $before "$sandbox_tenant/$sandbox_user";
        add_header X-Before $before always;
        sandbox on;
        sandbox_jwt_secret_file $TEST_NGINX_SECRET;
    }
--- claims: (exp => 1)
--- call
GET v1/limits
--- problem: 401 invalid_token
--- response_headers
X-Before: -/-
