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
