# Events of commands as they leave nginx, commands by their id, the history:
# what the runner is asked, what the client gets.  Those that need time, two
# workers or a client that misbehaves are in t/mock/stream.py.

use FindBin;
use lib "$FindBin::Bin/lib";
use Sandbox 'no_plan';

run_tests();

__DATA__

=== TEST 1: server-sent events, byte for byte
--- headers
Accept: text/event-stream
--- command: mock: stdout=a%0A stderr=b exit_code=3
--- fields
"commandId":"x1"
--- error_code: 200
--- response_body_like eval
qr/\Aid: 1\nevent: started\ndata: \{"type":"started","seq":1,"commandId":"x1","sandboxId":"sbx_[0-9a-f]{20}","startedAt":"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z","timeoutSeconds":120\}

id: 2\nevent: stdout\ndata: \{"type":"stdout","seq":2,"data":"a\\n"\}

id: 3\nevent: stderr\ndata: \{"type":"stderr","seq":3,"data":"b"\}

id: 4\nevent: result\ndata: \{"type":"result","seq":4,"commandId":"x1","sandboxId":"sbx_[0-9a-f]{20}","cwd":"\/home\/sandbox","exitCode":3,"signal":null,"outcome":"exit","stdoutBytes":2,"stderrBytes":1,"truncated":false,"binaryStripped":false,"timedOut":false,"timeoutSeconds":120,"durationMs":1,"queuedMs":0,"cpuMs":1,"memoryPeakBytes":1048576,"backgroundProcesses":0,"sandboxCreated":true,"stagingNotices":\[\]\}

\z/
--- response_headers
Content-Type: text/event-stream
Cache-Control: no-store
X-Accel-Buffering: no
X-Content-Type-Options: nosniff
Content-Location: /sandbox/v1/conversations/c1/commands/x1
! Content-Length



=== TEST 2: JSON a line
--- headers
Accept: application/x-ndjson
--- command: mock: stdout=a%0A
--- error_code: 200
--- response_body_like eval
qr/\A\{"type":"started","seq":1,[^\n]*\}\n\{"type":"stdout","seq":2,"data":"a\\n"\}\n\{"type":"result","seq":3,[^\n]*\}\n\z/
--- response_headers
Content-Type: application/x-ndjson
X-Accel-Buffering: no



=== TEST 3: streaming/framing, what could be taken for a frame is text
--- headers
Accept: text/event-stream
--- command: mock: stdout=data:%20x%0A%0A:%0D%0Aid:%209%0A%0A stdout=%E2%80%A8%22%5C%01
--- response_body_like eval
qr/\ndata: \{"type":"stdout","seq":2,"data":"data: x\\n\\n:\\r\\nid: 9\\n\\n"\}\n\nid: 3\nevent: stdout\ndata: \{"type":"stdout","seq":3,"data":"\xe2\x80\xa8\\"\\\\\\u0001"\}\n\nid: 4\n/



=== TEST 4: bytes that are no text, and NUL, are base64
--- headers
Accept: application/x-ndjson
--- command: mock: stdout=%FF%FE stdout=a%00b stderr=%E2%82 stdout=%E2%82%AC
--- response_body_like eval
qr/"seq":2,"dataBase64":"\/\/4="\}\n.*"seq":3,"dataBase64":"YQBi"\}\n\{"type":"stderr","seq":4,"dataBase64":"4oI="\}\n.*"seq":5,"data":"\xe2\x82\xac"\}\n/s



=== TEST 5: a gap has its number, stream and size
--- headers
Accept: text/event-stream
--- command: mock: stdout=a skip=7 gap=stderr,4711 stdout=b
--- response_body_like eval
qr/id: 2\n.*\n\nid: 10\nevent: gap\ndata: \{"type":"gap","seq":10,"stream":"stderr","bytes":4711\}\n\nid: 11\n/s



=== TEST 6: a sign of life is a comment, or an empty line
--- request eval
[("POST /sandbox/v1/conversations/c6/commands
{\"command\":\"mock: head ping taken ping taken stdout=x\"}") x 2]
--- headers eval
["Accept: text/event-stream\nContent-Type: application/json\n",
 "Accept: application/x-ndjson\nContent-Type: application/json\n"]
--- more_headers eval
["Accept: text/event-stream\nContent-Type: application/json\nAuthorization: Bearer " . Sandbox::token(),
 "Accept: application/x-ndjson\nContent-Type: application/json\nAuthorization: Bearer " . Sandbox::token()]
--- error_code eval
[200, 200]
--- response_body_like eval
[qr/\A(: ping\n\n)+id: 1\n/, qr/\A\n+\{"type":"started"/]



=== TEST 7: the runner is asked for a stream
--- headers
Accept: text/event-stream
--- command: mock: echo
--- response_body_like eval
qr/\\"STREAM\\": 1/



=== TEST 8: and is not, without the header
--- command: mock: echo
--- json
request.STREAM absent
request.DETACH absent
request.STDIN_OPEN absent



=== TEST 9: quality values: JSON where nothing says otherwise
--- request eval
[map { "POST /sandbox/v1/conversations/c9/commands\n{\"command\":\"mock: result\"}" } 1 .. 16]
--- more_headers eval
[map { ($_ eq "-" ? "" : "Accept: $_\n")
       . "Content-Type: application/json\nAuthorization: Bearer "
       . Sandbox::token() }
 "-", "*/*", "application/json, text/event-stream",
 "text/event-stream;q=0.5, application/json",
 "application/json;q=0.5, text/event-stream",
 "text/event-stream, */*", "text/event-stream;q=0, */*",
 "TEXT/Event-Stream", "text/*", "application/x-ndjson;q=0.9, text/event-stream;q=0.8",
 "text/event-stream, application/x-ndjson",
 "application/x-ndjson, text/event-stream",
 "text/html;x=\"a,text/event-stream\", */*;q=0.1",
 "text/event-stream; charset=utf-8", "image/png",
 "application/*, application/x-ndjson;q=0.9"]
--- error_code eval
[(200) x 16]
--- response_headers eval
[map { "Content-Type: $_" } ("application/json") x 4,
 ("text/event-stream") x 2, "application/json", ("text/event-stream") x 2,
 "application/x-ndjson", "text/event-stream", "application/x-ndjson",
 "application/json", "text/event-stream", ("application/json") x 2]



=== TEST 10: a refusal is a problem, whatever was accepted
--- headers
Accept: text/event-stream
--- command: mock: error=too_many_pending,3
--- problem: 429 too_many_pending
--- response_headers_like
Retry-After: 3



=== TEST 11: so are a request that can't be read, and no token
--- headers
Accept: text/event-stream
--- fields
"cmd":"id"
--- problem: 400 unknown_field



=== TEST 12: no token
--- headers
Accept: text/event-stream
--- token: none
--- command: id
--- problem: 401 unauthorized



=== TEST 13: a stream that loses its runner says so, with the number before
--- headers
Accept: text/event-stream
--- command: mock: stdout=a close
--- error_code: 200
--- response_body_like eval
qr/id: 2\nevent: stdout\n[^\n]*\n\nevent: result\ndata: \{"type":"result","seq":2,"commandId":"cmd[^"]*",.*"exitCode":null,"signal":null,"outcome":"runner_lost",.*"cpuMs":null,.*\}\n\n\z/
--- error_log
sandbox agent closed the connection before the result



=== TEST 14: so does one whose frames are none
--- headers
Accept: application/x-ndjson
--- command: mock: stdout=a raw=%00%00%00%00%63
--- error_code: 200
--- response_body_like eval
qr/"seq":2,"data":"a"\}\n\{"type":"result","seq":2,[^\n]*"outcome":"runner_lost"[^\n]*\}\n\z/
--- error_log
broke the protocol



=== TEST 15: a number that does not rise
--- headers
Accept: application/x-ndjson
--- command: mock: stdout=a frame=2,%00%00%00%00%00%00%00%02x
--- response_body_like: runner_lost
--- error_log
a sequence number out of order



=== TEST 16: STARTED for one that asked for no stream
--- command: mock: head frame=9,%00%00%00%00%00%00%00%01%00%00%00%00%00%00%00%01
--- json
outcome = "runner_lost"
--- error_log
a STARTED frame that nobody asked for



=== TEST 17: CANCEL is for agents
--- command: mock: head frame=10,
--- json
outcome = "runner_lost"
--- error_log
a CANCEL frame



=== TEST 18: closed before HEAD, once more; events are of the second
--- headers
Accept: application/x-ndjson
--- command: mock: 1:close stdout=second
--- response_body_like eval
qr/\A\{"type":"started","seq":1,.*\n.*"data":"second"\}\n\{"type":"result","seq":3/



=== TEST 19: a result without an outcome is none
--- headers
Accept: application/x-ndjson
--- command: mock: without=outcome stdout=a
--- response_body_like: runner_lost
--- error_log
a RESULT without an outcome



=== TEST 20: HTTP/1.0
--- raw_request eval
my $b = '{"command":"mock: stdout=a"}';
"POST /sandbox/v1/conversations/c20/commands HTTP/1.0\r
Host: x\r
Accept: application/x-ndjson\r
Authorization: Bearer " . Sandbox::token() . "\r
Content-Type: application/json\r
Content-Length: " . length($b) . "\r
\r
$b"
--- error_code: 200
--- response_body_like eval
qr/\A\{"type":"started".*\n.*\n\{"type":"result".*\}\n\z/



=== TEST 21: a background command is answered when it runs
--- command: mock: keep sleep=1
--- fields
"background":true,"commandId":"b1"
--- json_status: 202
--- json
. has acceptedAt,commandId,cwd,endedAt,queuedMs,sandboxCreated,sandboxId,seq,stagingNotices,startedAt,state,timeoutSeconds
commandId = "b1"
state = "running"
cwd = "/home/sandbox"
timeoutSeconds = 600
queuedMs = 2
sandboxCreated = true
stagingNotices = []
--- response_headers
Content-Location: /sandbox/v1/conversations/c21/commands/b1



=== TEST 22: its cap, and what the runner is asked
--- location
sandbox_background_time 30s; sandbox_wall_time 5s;
--- command: mock: echo
--- fields
"background":true,"timeoutSeconds":3600
--- json
timeoutSeconds = 30
request.DETACH = 1
request.STDIN_OPEN = 1
request.WALL_MS = 30000



=== TEST 23: stdin of a background command that brings its own is closed
--- command: mock: echo
--- fields
"background":true,"stdin":"x"
--- json
request.STDIN_OPEN absent
request.body = "x"



=== TEST 24: base64, likewise
--- command: mock: echo
--- fields
"background":true,"stdinBase64":"eA=="
--- json
request.STDIN_OPEN absent
request.body = "x"



=== TEST 25: unless it is to stay open
--- command: mock: echo
--- fields
"stdin":"x","stdinOpen":true
--- json
request.STDIN_OPEN = 1



=== TEST 26: or is not
--- command: mock: echo
--- fields
"background":true,"stdinOpen":false
--- json
request.STDIN_OPEN absent



=== TEST 27: streamed with an id of the client's, stdin is open
--- headers
Accept: application/x-ndjson
--- command: mock: echo
--- fields
"commandId":"open"
--- response_body_like eval
qr/STDIN_OPEN\\": 1/



=== TEST 28: without one it is closed
--- headers
Accept: application/x-ndjson
--- command: mock: echo
--- response_body_unlike eval
qr/STDIN_OPEN/



=== TEST 29: digests: background and stdinOpen are part of them
--- request eval
[map { "POST /sandbox/v1/conversations/c29/commands\n$_" }
 '{"command":"mock: keep stdout=1","commandId":"a"}',
 '{"command":"mock: keep stdout=1","commandId":"a","onDisconnect":"cancel"}',
 '{"command":"mock: keep stdout=1","commandId":"a","background":false}',
 '{"command":"mock: keep stdout=1","commandId":"a","background":true}',
 '{"command":"mock: keep stdout=1","commandId":"a","stdinOpen":true}']
--- headers
Content-Type: application/json
--- error_code eval
[200, 200, 200, 409, 409]
--- response_body_like eval
[('"stdout":"1"') x 3, ("command_id_reused") x 2]



=== TEST 30: a command by its id: result, state, events
--- request eval
["POST /sandbox/v1/conversations/c30/commands\n"
 . '{"command":"mock: keep stdout=one stderr=two exit_code=4","commandId":"k"}',
 "GET /sandbox/v1/conversations/c30/commands/k",
 "GET /sandbox/v1/conversations/c30/commands/k?encoding=base64",
 "GET /sandbox/v1/conversations/c30/commands/unknown",
 "GET /sandbox/v1/conversations/never-used/commands/k",
 "GET /sandbox/v1/conversations/c30/commands/not%20one",
 "POST /sandbox/v1/conversations/c30/commands\n"
 . '{"command":"mock: keep wait=never","commandId":"runs","background":true}',
 "GET /sandbox/v1/conversations/c30/commands/runs",
 "DELETE /sandbox/v1/conversations/c30/commands/runs",
 "DELETE /sandbox/v1/conversations/c30/commands/k",
 "DELETE /sandbox/v1/conversations/c30/commands/unknown"]
--- headers
Content-Type: application/json
--- error_code eval
[200, 200, 200, 404, 404, 404, 202, 200, 200, 200, 404]
--- response_body_like eval
[qr/"commandId":"k".*"exitCode":4.*"stdout":"one","stderr":"two"/,
 qr/"commandId":"k".*"exitCode":4.*"stdout":"one","stderr":"two"/,
 qr/"stdoutBase64":"b25l","stderrBase64":"dHdv"/,
 "command_not_found", "no_sandbox", "command_not_found",
 '"state":"running"', '"commandId":"runs".*"state":"running".*"startedAt":"2025-11-30T00:00:00.123Z"',
 '"outcome":"cancelled"', '"exitCode":4.*"outcome":"exit"',
 "command_not_found"]



=== TEST 31: what the runner is asked for a command by its id
--- request eval
["POST /sandbox/v1/conversations/c31/commands\n"
 . '{"command":"mock: on=ATTACH,echo%20result on=CANCEL,echo%20result"}',
 "GET /sandbox/v1/conversations/c31/commands/id-1?after=5",
 "DELETE /sandbox/v1/conversations/c31/commands/id-2"]
--- headers
Content-Type: application/json
--- error_code eval
[200, 200, 200]
--- response_body_like eval
["", qr/\\"COMMAND_ID\\": \\"id-1\\"(?!.*STREAM)(?!.*AFTER).*\\"flags\\": 2,.*\\"operation\\": 17,/,
 qr/\\"COMMAND_ID\\": \\"id-2\\".*\\"flags\\": 2,.*\\"operation\\": 18,/]



=== TEST 32: streaming/resume, numbers
--- request eval
["POST /sandbox/v1/conversations/c32/commands\n"
 . '{"command":"mock: keep stdout=two stdout=three stdout=four","commandId":"k"}',
 (map { "GET /sandbox/v1/conversations/c32/commands/k$_" } "", "?after=0",
  "?after=3", "?after=5", "?after=6", "?after=x", "?after=-1", "?after=",
  "?after=9007199254740992", "?after=123456789012345678901")]
--- more_headers eval
[map { "$_\nContent-Type: application/json\nAuthorization: Bearer "
       . Sandbox::token() } "Accept: application/json",
 ("Accept: application/x-ndjson") x 10]
--- error_code eval
[200, 200, 200, 200, 200, 400, 400, 400, 400, 400, 400]
--- response_body_like eval
["", (qr/\A\{"type":"started","seq":1.*"seq":2,"data":"two".*"seq":5,.*outcome/s) x 2,
 qr/\A\{"type":"stdout","seq":4,"data":"four"\}\n\{"type":"result","seq":5/,
 qr/\A\{"type":"result","seq":5,[^\n]*\}\n\z/, "seq_unknown",
 ("bad_request") x 5]



=== TEST 33: streaming/resume, the header of a browser counts more
--- request eval
["POST /sandbox/v1/conversations/c33/commands\n"
 . '{"command":"mock: keep stdout=two stdout=three stdout=four","commandId":"k"}',
 ("GET /sandbox/v1/conversations/c33/commands/k?after=1") x 3]
--- more_headers eval
[map { "$_\nContent-Type: application/json\nAuthorization: Bearer "
       . Sandbox::token() } "Accept: application/json",
 "Accept: text/event-stream\nLast-Event-ID: 3",
 "Accept: text/event-stream\nLast-Event-ID: abc",
 "Accept: text/event-stream\nLast-Event-ID: "]
--- error_code eval
[200, 200, 400, 200]
--- response_body_like eval
["", qr/\Aid: 4\n/, "bad_request", qr/\Aid: 2\n/]



=== TEST 34: streaming/resume, kept no more
--- request eval
["POST /sandbox/v1/conversations/c34/commands\n"
 . '{"command":"mock: keep stdout=two forget","commandId":"k"}',
 ("GET /sandbox/v1/conversations/c34/commands/k") x 2]
--- more_headers eval
[map { "$_\nContent-Type: application/json\nAuthorization: Bearer "
       . Sandbox::token() } ("Accept: application/json") x 2,
 "Accept: text/event-stream"]
--- error_code eval
[200, 200, 410]
--- response_body_like eval
["", '"stdout":null,"stderr":null,.*"outputExpired":true', '"expired"']



=== TEST 35: stdin to a command
--- request eval
["POST /sandbox/v1/conversations/c35/commands\n"
 . '{"command":"mock: keep copy","commandId":"k","background":true}',
 "POST /sandbox/v1/conversations/c35/commands/k/stdin\nhello \0 bytes",
 "POST /sandbox/v1/conversations/c35/commands/k/stdin?eof=1\n, and the end",
 "POST /sandbox/v1/conversations/c35/commands/k/stdin?eof=2\nx",
 "GET /sandbox/v1/conversations/c35/commands/k",
 "POST /sandbox/v1/conversations/c35/commands\n"
 . '{"command":"mock: keep copy","commandId":"k","background":true}',
 "GET /sandbox/v1/conversations/c35/commands/k?encoding=base64",
 "POST /sandbox/v1/conversations/c35/commands/k/stdin\nmore",
 "POST /sandbox/v1/conversations/c35/commands/other/stdin\nmore"]
--- more_headers eval
[map { "Accept: $_\nContent-Type: application/json\nAuthorization: Bearer "
       . Sandbox::token() } ("application/json") x 4, "text/event-stream",
 ("application/json") x 4]
--- error_code eval
[202, 200, 200, 400, 200, 200, 200, 409, 404]
--- response_body_like eval
['"running"', qr/\A\{"bytes":13\}\n\z/, qr/\A\{"bytes":13\}\n\z/,
 "bad_request", qr/event: result/, 'u?hello', "aGVsbG8gACBieXRlcywgYW5kIHRoZSBlbmQ=",
 "command_ended", "command_not_found"]



=== TEST 36: stdin, what the runner is asked
--- request eval
["POST /sandbox/v1/conversations/c36/commands\n"
 . '{"command":"mock: on=STDIN,bytes=7%20result"}',
 "POST /sandbox/v1/conversations/c36/commands/k/stdin?eof=1\nx"]
--- headers
Content-Type: application/json
--- error_code eval
[200, 200]
--- response_body_like eval
["", qr/\A\{"bytes":7\}\n\z/]



=== TEST 37: stdin of too many bytes, by their length
--- location
sandbox_file_size 1k;
--- call eval
"POST v1/conversations/C/commands/k/stdin\n" . "x" x 1025
--- problem: 413 body_too_large



=== TEST 38: stdin of the most bytes, of any type
--- location
sandbox_file_size 1k;
--- request eval
["POST /sandbox/v1/conversations/c38/commands\n"
 . '{"command":"mock: keep copy","commandId":"k","background":true}',
 "POST /sandbox/v1/conversations/c38/commands/k/stdin\n" . "x" x 1024,
 "POST /sandbox/v1/conversations/c38/commands/k/stdin"]
--- headers
Content-Type: application/json
--- error_code eval
[202, 200, 200]
--- response_body_like eval
["", qr/"bytes":1024\}/, qr/"bytes":0\}/]



=== TEST 39: the history, in pages
--- request eval
[(map { "POST /sandbox/v1/conversations/c39/commands\n"
        . "{\"command\":\"mock: exit_code=$_\",\"commandId\":\"h$_\"}" } 1 .. 5),
 (map { "GET /sandbox/v1/conversations/c39/commands$_" } "", "?limit=2",
  "?limit=2&cursor=4", "?limit=2&cursor=2", "?limit=0", "?limit=1001",
  "?limit=x", "?cursor=0", "?cursor=a%20b")]
--- headers
Content-Type: application/json
--- error_code eval
[(200) x 9, (400) x 5]
--- response_body_like eval
[("") x 5,
 qr/\A\{"commands":\[\{"commandId":"h5".*"h4".*"h3".*"h2".*"h1".*\],"next":null\}\n\z/,
 qr/"h5".*"h4".*\}\],"next":"4"\}/, qr/"h3".*"h2".*\}\],"next":"2"\}/,
 qr/\A\{"commands":\[\{"commandId":"h1","sandboxId":"sbx_[0-9a-f]{20}","cwd":"\/home\/sandbox","exitCode":1,"signal":null,"outcome":"exit","stdoutBytes":0,"stderrBytes":0,"truncated":false,"binaryStripped":false,"timedOut":false,"timeoutSeconds":120,"durationMs":1,"queuedMs":0,"cpuMs":1,"memoryPeakBytes":1048576,"backgroundProcesses":0,"sandboxCreated":true,"stagingNotices":\[\],"state":"ended","command":"mock: exit_code=1","background":false,"outputExpired":false,"acceptedAt":"2025-11-30T00:00:00.123Z","startedAt":"2025-11-30T00:00:00.124Z","endedAt":"2025-11-30T00:00:01.000Z"\}\],"next":null\}\n\z/,
 ("bad_request") x 5]



=== TEST 40: the history of a conversation that was never used
--- call: GET v1/conversations/C/commands
--- problem: 404 no_sandbox



=== TEST 41: an empty history
--- request eval
["POST /sandbox/v1/conversations/c41/commands\n"
 . '{"command":"mock: on=HISTORY,head%20next=0%20result"}',
 "GET /sandbox/v1/conversations/c41/commands"]
--- headers
Content-Type: application/json
--- error_code eval
[200, 200]
--- response_body_like eval
["", qr/\A\{"commands":\[\],"next":null\}\n\z/]



=== TEST 42: receipts that are none
--- request eval
[map { ("POST /sandbox/v1/conversations/c42-$_->[0]/commands\n"
        . "{\"command\":\"mock: on=HISTORY,$_->[1]\"}",
        "GET /sandbox/v1/conversations/c42-$_->[0]/commands?limit=1") }
 [1, "head%20data=%2500%2500%2500%2500"],
 [2, "head%20data=%25FF%2500%2500%2500"],
 [3, "head%20data=%2500%2500%2500%2505hello%20next=0%20result"],
 [4, "head%20data=%2500%2500%2500%2502hi"],
 [5, "data=%2500%2500%20next=0%20result"],
 [6, "head%20result"]]
--- headers
Content-Type: application/json
--- error_code eval
[(200, 502) x 6]
--- response_body_like eval
[("", "bad_upstream") x 6]



=== TEST 43: HEAD of a command is told what GET would be
--- request eval
["POST /sandbox/v1/conversations/c43/commands\n"
 . '{"command":"mock: keep stdout=two","commandId":"k"}',
 "HEAD /sandbox/v1/conversations/c43/commands/k"]
--- headers
Content-Type: application/json
Accept: text/event-stream
--- error_code eval
[200, 200]
--- response_headers eval
["Content-Type: text/event-stream", "Content-Type: application/json"]



=== TEST 44: DATA that nobody asked for
--- headers
Accept: application/x-ndjson
--- command: mock: stdout=a data=x
--- response_body_like: runner_lost
--- error_log
a DATA frame that nobody asked for



=== TEST 45: the location's name is in Content-Location as a path
--- config
    location "/san d/box" {
        sandbox on;
        sandbox_jwt_secret_file $TEST_NGINX_SECRET;
    }
--- request
POST /san%20d/box/v1/conversations/c45/commands
{"command":"mock: result","commandId":"k"}
--- headers
Accept: application/x-ndjson
Content-Type: application/json
--- response_headers
Content-Location: /san%20d/box/v1/conversations/c45/commands/k



=== TEST 46: output of 64 KiB a frame, all of it escapes
--- headers
Accept: application/x-ndjson
--- command: mock: fill=stdout,%01,200000 fill=stderr,%E2%82%AC,21000 fill=stdout,%FF,100000
--- response_body_like eval
qr/"data":"(?:(?:\\u0001){32768}){2}"\}\n.*(?:\xe2\x82\xac){21000}.*"dataBase64":"(?:\/{29127}){3}w=="\}\n.*"stdoutBytes":300000,"stderrBytes":63000/s



=== TEST 47: one that has to wait: signs of life, then a refusal at its turn
--- headers
Accept: text/event-stream
--- command: mock: ping taken ping taken detail=%22No%22 error=cwd_missing,7
--- error_code: 200
--- response_body_like eval
qr/\A(?:: ping\n\n)+event: refused\ndata: \{"type":"refused","seq":0,"status":422,"code":"cwd_missing","detail":"\\"No\\"","retryAfter":7\}\n\n\z/
--- response_headers
! Content-Location



=== TEST 48: the same, its runner goes away before anything was started
--- headers
Accept: application/x-ndjson
--- command: mock: ping taken close
--- fields
"commandId":"k"
--- error_code: 200
--- response_body_like eval
qr/\A\n*\{"type":"refused","seq":0,"status":503,"code":"runner_lost","detail":"[^"]*nothing was started\.","retryAfter":5\}\n\z/
--- response_headers
Content-Location: /sandbox/v1/conversations/c48/commands/k
--- error_log
sandbox agent closed the connection before the result



=== TEST 49: and one that gets its turn
--- headers
Accept: application/x-ndjson
--- command: mock: ping taken head stdout=x
--- response_body_like eval
qr/\A\n*\{"type":"started","seq":1,.*\n\{"type":"stdout","seq":2,"data":"x"\}\n\{"type":"result","seq":3,/



=== TEST 50: a POST that comes back has its command's id, and what it has seen
--- request eval
[("POST /sandbox/v1/conversations/c50/commands\n"
  . '{"command":"mock: keep stdout=two stdout=three stdout=four","commandId":"k"}') x 5]
--- more_headers eval
[map { "$_\nContent-Type: application/json\nAuthorization: Bearer "
       . Sandbox::token() } "Accept: text/event-stream",
 "Accept: text/event-stream\nLast-Event-ID: 3",
 "Accept: text/event-stream\nLast-Event-ID: 5",
 "Accept: text/event-stream\nLast-Event-ID: x",
 "Accept: application/json\nLast-Event-ID: 3"]
--- error_code eval
[200, 200, 200, 400, 200]
--- response_body_like eval
[qr/\Aid: 1\n/, qr/\Aid: 4\nevent: stdout\ndata: \{"type":"stdout","seq":4,"data":"four"\}\n\nid: 5\nevent: result\n/,
 qr/\Aid: 5\nevent: result\n/, "bad_request", qr/"stdout":"twothreefour"/]



=== TEST 51: without an id it is another command, whatever was seen
--- headers
Accept: text/event-stream
Last-Event-ID: 3
--- command: mock: stdout=two
--- response_body_like eval
qr/\Aid: 1\nevent: started\n/
