# $sandbox_... in logs and headers: what a request was, "-" where it is
# nothing, never a token or a command.

use FindBin;
use lib "$FindBin::Bin/lib";
use Sandbox 'no_plan';

add_block_preprocessor(sub {
    my ($block) = @_;

    $block->set_value("http", ($block->http // "") . <<'_EOC_');
    log_format sandbox "op=$sandbox_operation tenant=$sandbox_tenant "
        "user=$sandbox_user conversation=$sandbox_conversation "
        "id=$sandbox_id command=$sandbox_command_id outcome=$sandbox_outcome "
        "exit=$sandbox_exit_code cpu=$sandbox_cpu_ms "
        "memory=$sandbox_memory_peak queued=$sandbox_queued_ms "
        "status=$sandbox_status";
    access_log logs/sandbox.log sandbox;
    access_log logs/access.log sandbox;
_EOC_
});

repeat_each(1);
run_tests();

__DATA__

=== TEST 1: a command
--- conversation: logged
--- claims: (sub => "alice")
--- command: mock: exit_code=3 cpu_us=7000 memory_peak=4096 queued_us=2000
--- fields
"commandId":"my-id"
--- json
exitCode = 3
--- access_log eval
qr/op=\S+ tenant=\S+ user=alice conversation=logged id=sbx_[0-9a-f]{20} command=my-id outcome=exit exit=3 cpu=7 memory=4096 queued=2 /



=== TEST 2: refused for want of a token
--- conversation: logged
--- token: none
--- command: id
--- problem: 401 unauthorized
--- access_log eval
qr/ user=- conversation=\S+ id=- command=- outcome=- exit=- cpu=- memory=- queued=-/



=== TEST 3: a bad token is not logged, nor its claims
--- token: eyJhbGciOiJub25lIn0.eyJzdWIiOiJhbGljZSJ9.
--- command: id
--- problem: 401 invalid_token
--- access_log: user=-
--- no_error_log
eyJhbGciOiJub25lIn0
[alert]
[crit]



=== TEST 4: the command's text is never logged
--- command: mock: stdout=secret-word-7711
--- json
stdout = "secret-word-7711"
--- access_log: conversation=c4
--- no_access_log
secret-word-7711
--- no_error_log
secret-word-7711
[alert]
[crit]



=== TEST 5: a location without the module
--- config
    location /sandbox/ {
        return 200 "[$sandbox_user][$sandbox_status][$sandbox_outcome]\n";
    }
--- call
GET health
--- response_body_like: ^\[-\]\[\w*-?\]\[-\]$



=== TEST 6: usable in a map and in a header
--- http
    map $sandbox_user $greeting { default "other"; alice "hello"; }
--- location
add_header X-Greeting $greeting always;
--- command: mock: result
--- json
exitCode = 0
--- response_headers
X-Greeting: hello



=== TEST 7: in limit_req_zone
--- http
    limit_req_zone $sandbox_user zone=users:1m rate=1r/m;
--- location
limit_req zone=users;
limit_req_status 429;
--- request eval
["GET /sandbox/v1/limits", "GET /sandbox/v1/limits"]
--- error_code eval
[200, 429]
--- no_error_log
[alert]
[crit]



=== TEST 8: in the rewrite phase
--- location
set $who "$sandbox_user of $sandbox_tenant, $sandbox_operation";
add_header X-Who $who always;
--- call
GET v1/limits
--- response_headers
X-Who: alice of alice, limits
--- error_code: 200



=== TEST 9: in the rewrite phase, without a token
--- location
set $who "[$sandbox_user][$sandbox_tenant]";
add_header X-Who $who always;
--- token: none
--- call
GET v1/limits
--- response_headers
X-Who: [-][-]
--- problem: 401 unauthorized
--- access_log: user=-



=== TEST 10: in a condition, and a rewrite after it
--- location
if ($sandbox_user = alice) {
    rewrite ^/sandbox/mine$ /sandbox/v1/conversations/of-alice last;
}
--- call
GET mine
--- json
state = "none"
conversationId = "of-alice"
--- access_log eval
qr/op=conversation\.get tenant=alice user=alice conversation=of-alice/



=== TEST 11: a tenant's claim
--- location
sandbox_tenant_claim org.id;
--- claims: (sub => "alice", org => { id => "acme" })
--- call
GET v1/limits
--- error_code: 200
--- access_log: tenant=acme user=alice



=== TEST 12: no tenant, no user
--- location
sandbox_tenant_claim org.id;
--- claims: (sub => "alice", org => "acme")
--- call
GET v1/limits
--- problem: 401 invalid_token
--- access_log: tenant=- user=-



=== TEST 13: refused for want of the permission
--- claims: (sub => "alice", permissions => ["sandbox:executes"])
--- call
GET v1/limits
--- problem: 403 insufficient_scope
--- access_log: tenant=- user=-



=== TEST 14: a reader, where readers may
--- location
sandbox_permission_read sandbox:read;
--- claims: (sub => "alice", permissions => ["sandbox:read"])
--- call
GET v1/conversations/C
--- error_code: 200
--- access_log: user=alice



=== TEST 15: a reader, where readers may not
--- location
sandbox_permission_read sandbox:read;
--- claims: (sub => "alice", permissions => ["sandbox:read"])
--- call
GET v1/limits
--- problem: 403 insufficient_scope
--- access_log: user=-



=== TEST 16: after an error of nginx's own: whose request it was
--- location
deny all;
--- call
GET v1/limits
--- problem: 403 forbidden
--- access_log: user=alice



=== TEST 17: public, disabled, missing
--- call
GET health
--- error_code: 200
--- access_log: op=health tenant=- user=-



=== TEST 18: a path that there is not
--- call
GET v1/nothing
--- problem: 404 not_found
--- access_log: op=- tenant=alice user=alice conversation=-



=== TEST 19: an error page of another location
--- config
    location /sandbox/ {
        sandbox on;
        sandbox_jwt_secret_file $TEST_NGINX_SECRET;
    }

    location /other/ {
        error_page 404 = /page;
    }

    location = /page {
        return 200 "[$sandbox_user][$sandbox_tenant][$sandbox_token_cache]";
    }
--- request
GET /other/
--- response_body: [-][-][-]



=== TEST 20: an error page that is one of our paths
--- config
    location /sandbox/ {
        sandbox on;
        sandbox_jwt_secret_file $TEST_NGINX_SECRET;
    }

    location /other/ {
        set $before "[$sandbox_user]";
        add_header X-Before $before always;
        error_page 404 = /sandbox/v1/conversations/page;
    }
--- request
GET /other/
--- error_code: 200
--- json
state = "none"
--- access_log eval
qr/op=conversation\.get tenant=alice user=alice conversation=page/



=== TEST 21: an internal redirect out of our location
--- config
    location /sandbox/ {
        sandbox on;
        sandbox_jwt_secret_file $TEST_NGINX_SECRET;
        set $before "$sandbox_user";
        try_files /nothing @other;
    }

    location @other {
        return 200 "$before, then $sandbox_user";
    }
--- call
GET v1/limits
--- error_code: 200
--- response_body: alice, then -
--- access_log: op=- tenant=- user=-



=== TEST 22: a subrequest into our location
--- config
    location /sandbox/ {
        sandbox on;
        sandbox_jwt_secret_file $TEST_NGINX_SECRET;
        log_subrequest on;
    }

    location /app/ {
        auth_request /sandbox/v1/limits;
        alias $TEST_NGINX_DIR/;
    }
--- request
GET /app/public.pem
--- response_body_like: BEGIN PUBLIC KEY
--- access_log: op=limits tenant=alice user=alice



=== TEST 23: a subrequest into our location, refused
--- config
    location /sandbox/ {
        sandbox on;
        sandbox_jwt_secret_file $TEST_NGINX_SECRET;
        log_subrequest on;
    }

    location /app/ {
        auth_request /sandbox/v1/limits;
        alias $TEST_NGINX_DIR/;
    }
--- token: none
--- request
GET /app/public.pem
--- error_code: 401
--- response_headers_like
WWW-Authenticate: Bearer realm="/sandbox/"
--- access_log: op=limits tenant=- user=-



=== TEST 24: the cache of tokens, and its counters in any location
--- http
    map $sandbox_token_cache $known { default 0; hit 1; }
--- config
    location /sandbox/ {
        sandbox on;
        sandbox_jwt_secret_file $TEST_NGINX_SECRET;
        add_header X-Known "$sandbox_token_cache $known" always;
    }

    location /counters {
        return 200 "$sandbox_token_cache_hits $sandbox_token_cache_misses $sandbox_token_cache_evictions $sandbox_token_cache_refused $sandbox_token_cache_entries";
    }
--- request eval
["GET /sandbox/v1/limits", "GET /sandbox/v1/limits", "GET /counters"]
--- response_headers eval
["X-Known: miss 0", "X-Known: hit 1", ""]
--- response_body_like eval
["backend", "backend", qr/^1 1 0 0 1$/]
--- error_code eval
[200, 200, 200]



=== TEST 25: counters without a zone
--- http_config
--- config
    location /counters {
        return 200 "[$sandbox_token_cache_hits][$sandbox_token_cache]";
    }
--- request
GET /counters
--- response_body: [-][-]
