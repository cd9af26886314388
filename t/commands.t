# POST .../commands: what the runner is asked, and how its answer is told.

use FindBin;
use lib "$FindBin::Bin/lib";
use Sandbox 'no_plan';

run_tests();

__DATA__

=== TEST 1: the result has exactly these members
--- command: mock: stdout=out%0A stderr=err%0A exit_code=3 duration_us=1500 queued_us=2500 cpu_us=3500 memory_peak=4096 background=2
--- json
. has commandId,sandboxId,cwd,exitCode,signal,outcome,stdout,stderr,stdoutBytes,stderrBytes,truncated,binaryStripped,timedOut,timeoutSeconds,durationMs,queuedMs,cpuMs,memoryPeakBytes,backgroundProcesses,sandboxCreated,stagingNotices
commandId ~ ^[A-Za-z0-9._-]{1,64}$
sandboxId ~ ^sbx_[0-9a-f]{20}$
cwd = "/home/sandbox"
exitCode = 3
signal = null
outcome = "exit"
stdout = "out\n"
stderr = "err\n"
stdoutBytes = 4
stderrBytes = 4
truncated = false
binaryStripped = false
timedOut = false
timeoutSeconds = 120
durationMs ~ ^[12]$
queuedMs ~ ^[23]$
cpuMs ~ ^[34]$
memoryPeakBytes = 4096
backgroundProcesses = 2
sandboxCreated = true
stagingNotices = []
--- response_headers_like
Content-Type: application/json.*
Cache-Control: .*no-store.*
X-Content-Type-Options: nosniff



=== TEST 2: what the runner is asked by default
--- command: echo hi
--- json
request.COMMAND = "echo hi"
request.WALL_MS = 120000
request.CPU_MS = 30000
request.OUTPUT = 262144
request.OUTPUT_TOTAL = 1073741824
request.OPEN_FILES = 1024
request.PENDING = 10
request.ENV absent
request.COMMAND_ID absent
request.DIGEST ~ ^[0-9a-f]{64}$
request.body = ""
request.preamble.operation = 16
request.preamble.version = 1
request.preamble.flags = 0
request.preamble.instance = 0
request.preamble.memory = 1024
request.preamble.disk = 1024
request.preamble.processes = 256
request.preamble.egress = 0
request.preamble.key = true
request.preamble.session ~ ^[0-9a-f]{64}$
request.preamble.tenant ~ ^[0-9a-f]{32}$



=== TEST 3: every field of a request
--- command: echo hi
--- fields
"cwd":"/tmp/x","timeoutSeconds":7,"env":{"A":"1","B_2":"two words","EMPTY":""},"stdin":"in\n","commandId":"my-1.id_A","fresh":true
--- json
commandId = "my-1.id_A"
timeoutSeconds = 7
request.CWD = "/tmp/x"
request.WALL_MS = 7000
request.ENV = ["A=1","B_2=two words","EMPTY="]
request.COMMAND_ID = "my-1.id_A"
request.body = "in\n"
request.preamble.body = 3
request.preamble.flags = 1



=== TEST 4: stdin as base64
--- command: cat
--- fields
"stdinBase64":"AP/+Cg=="
--- json
request.body = "hex:00fffe0a"



=== TEST 5: limits/limits-reported, caps of the location
--- location
sandbox_wall_time 20s; sandbox_cpu_time 5s; sandbox_memory 512m;
sandbox_output 4k; sandbox_output_total 1m; sandbox_processes 64;
sandbox_open_files 128; sandbox_disk 100m; sandbox_pending 3;
--- command: x
--- json
timeoutSeconds = 20
request.WALL_MS = 20000
request.CPU_MS = 5000
request.OUTPUT = 4096
request.OUTPUT_TOTAL = 1048576
request.OPEN_FILES = 128
request.PENDING = 3
request.preamble.memory = 512
request.preamble.disk = 100
request.preamble.processes = 64



=== TEST 6: http/timeout-values, above the cap is lowered and told
--- location
sandbox_wall_time 20s;
--- command: x
--- fields
"timeoutSeconds":1000000000
--- json
timeoutSeconds = 20
request.WALL_MS = 20000



=== TEST 7: exec/signals, a signal has its name
--- command: mock: exit_code=139 outcome=1 signal=SIGSEGV
--- json
exitCode = 139
outcome = "signal"
signal = "SIGSEGV"
timedOut = false



=== TEST 8: limits/wall-basic, timed out
--- command: mock: stdout=1%0A exit_code=124 outcome=2
--- json
exitCode = 124
outcome = "timeout"
timedOut = true
stdout = "1\n"



=== TEST 9: the other outcomes
--- request eval
[map { "POST /sandbox/v1/conversations/outcomes/commands\n"
       . qq({"command":"mock: exit_code=137 outcome=$_"}) } 3 .. 8]
--- headers
Content-Type: application/json
--- error_code eval
[(200) x 6]
--- response_body_like eval
[map { qq("outcome":"$_") } qw(cpu_limit oom output_limit disk_full cancelled
 sandbox_deleted)]



=== TEST 10: limits/output-cap, head and tail with a mark between
--- command: mock: stdout=head gap=stdout,12345 stdout=tail truncated=1
--- json
truncated = true
stdout = "head… [12345 bytes left out] …tail"
stdoutBytes = 12353
exitCode = 0



=== TEST 11: exec/binary-output, text stays valid, the rest is told
--- command: mock: stdout=a%FF%FEb%00c%0A
--- json
binaryStripped = true
stdout ~ ^a.*b.*c\n$
stdoutBytes = 7



=== TEST 12: exec/binary-output, exact bytes by base64
--- arguments: ?encoding=base64
--- command: mock: stdout=a%FF%FEb%00c%0A stderr=%00
--- json
stdoutBase64 = "Yf/+YgBjCg=="
stderrBase64 = "AA=="
stdout absent
stderr absent
stdoutBytes = 7



=== TEST 13: an unknown encoding
--- arguments: ?encoding=rot13
--- command: true
--- problem: 400 bad_request



=== TEST 14: exec/utf8-split, characters across frames
--- command: mock: fill=stdout,%E2%82%AC,1 stdout=%E2 stdout=%82%AC stderr=%F0%9F stderr=%98%80
--- json
stdout = "€€"
stderr = "😀"
binaryStripped = false



=== TEST 15: JSON escapes what has to be escaped
--- command: mock: stdout=%22%5C%08%0C%0A%0D%09%01%1F%7F%E2%80%A8/
--- json
stdout = "\"\\\b\f\n\r\t\u0001\u001f\u007f\u2028/"
binaryStripped = false



=== TEST 16: exec/silent-command
--- command: mock: result
--- json
stdout = ""
stderr = ""
stdoutBytes = 0
exitCode = 0



=== TEST 17: output of 256 KiB on both streams
--- command: mock: fill=stdout,x,262144 fill=stderr,%E2%82%AC,87381
--- error_code: 200
--- response_body_like eval
qr/"stdout":"(?:x{32768}){8}",.*"stdoutBytes":262144,"stderrBytes":262143,"truncated":false/



=== TEST 18: streams that take turns
--- command: mock: stdout=1 stderr=a stdout=2 stderr=b stdout=3
--- json
stdout = "123"
stderr = "ab"



=== TEST 19: PING before and after HEAD means nothing
--- command: mock: ping=3 head ping=5 stdout=x ping ping result
--- json
stdout = "x"



=== TEST 20: fields that the module does not know are skipped
--- command: mock: frame=1,%FF%F0%00%00%00%03abc nohead stdout=x
--- json
stdout = "x"
outcome = "exit"



=== TEST 21: text of the command as it is
--- fields
"command":"printf '%s' \"\u00e9\ud83d\ude00\u2028\" 'a\\b'\n\tx"
--- json
request.COMMAND = "printf '%s' \"é😀\u2028\" 'a\\b'\n\tx"



=== TEST 22: exec/long-command, 256 KiB
--- call eval
"POST v1/conversations/C/commands\n{\"command\":\"mock: without="
. "x" x 262121 . " stdout=y\"}"
--- json
exitCode = 0
stdout = "y"



=== TEST 23: exec/long-command, one byte more
--- call eval
"POST v1/conversations/C/commands\n{\"command\":\"" . "x" x 262145 . "\"}"
--- problem: 413 command_too_large
--- json
detail ~ 256k|262144|256 KiB



=== TEST 24: a small limit for the command's text
--- location
sandbox_command_size 1k;
--- call eval
"POST v1/conversations/C/commands\n{\"command\":\"" . "x" x 1025 . "\"}"
--- problem: 413 command_too_large



=== TEST 25: model-like extras are refused, http/unknown-field
--- fields
"command":"id","timeout":5
--- problem: 400 unknown_field
--- json
detail ~ timeout.*timeoutSeconds



=== TEST 26: the id comes from the client and stays
--- command: mock: result
--- fields
"commandId":"same-id"
--- json
commandId = "same-id"



=== TEST 27: digests tell requests apart
--- request eval
[map { "POST /sandbox/v1/conversations/digests/commands\n$_" }
 '{"command":"a"}', '{"command":"a" }', '{"command":"b"}',
 '{"command":"a","cwd":"/tmp"}', '{"command":"a","stdin":"x"}']
--- headers
Content-Type: application/json
--- error_code eval
[(200) x 5]
--- response_body_like eval
[("DIGEST") x 5]



=== TEST 28: a flood of PING is not endured
--- command: mock: head ping=100000 stdout=x
--- json
outcome = "runner_lost"
exitCode = null
--- error_log
too many PING frames
