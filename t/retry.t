# What happens when the runner's side of a connection goes away: before HEAD
# nothing was started, so it is asked once more; after HEAD it never is.

use FindBin;
use lib "$FindBin::Bin/lib";
use Sandbox 'no_plan';

repeat_each(1);
run_tests();

__DATA__

=== TEST 1: closed before HEAD, once
--- command: mock: 1:close stdout=again
--- json
stdout = "again"



=== TEST 2: reset before HEAD, once
--- command: mock: noread 1:close stdout=again
--- json
stdout = "again"



=== TEST 3: closed before HEAD after some PING, once
--- command: mock: 1:ping=3 1:close stdout=again
--- json
stdout = "again"



=== TEST 4: closed before HEAD within a frame, once
--- command: mock: 1:cut=3 head stdout=again
--- json
stdout = "again"



=== TEST 5: closed before HEAD, twice
--- command: mock: 1:close 2:close stdout=never
--- problem: 503 runner_lost
--- response_headers_like
Retry-After: [1-9][0-9]*
--- no_error_log
[alert]
[emerg]



=== TEST 6: closed before HEAD with stdin, once
--- command: mock: 1:close echo
--- fields
"stdin":"the body comes again"
--- json
request.body = "the body comes again"



=== TEST 7: closed after HEAD is a loss
--- command: mock: head close
--- json
outcome = "runner_lost"
exitCode = null
timedOut = false
commandId ~ .
--- no_error_log
[alert]
[emerg]



=== TEST 8: after HEAD it is never asked again
--- request eval
["POST /sandbox/v1/conversations/never/commands\n"
 . '{"command":"mock: head close"}',
 "POST /sandbox/v1/conversations/never/commands\n"
 . '{"command":"mock: seen"}']
--- headers
Content-Type: application/json
--- error_code eval
[200, 200]
--- response_body_like eval
['"outcome":"runner_lost"', qr/\[\\"COMMAND\\", \\"COMMAND\\"\]/]
--- no_error_log
[alert]
[emerg]



=== TEST 9: the output before a loss is told
--- command: mock: stdout=before stderr=this close
--- json
outcome = "runner_lost"
stdout = "before"
stderr = "this"



=== TEST 10: a RESULT cut short is a loss, never a result
--- command: mock: stdout=x cut=20 result
--- json
outcome = "runner_lost"
exitCode = null



=== TEST 11: output cut short is a loss
--- command: mock: head cut=50 fill=stdout,x,1000
--- json
outcome = "runner_lost"
exitCode = null



=== TEST 12: a refusal is not asked again
--- request eval
["POST /sandbox/v1/conversations/refused/commands\n"
 . '{"command":"mock: error=at_capacity"}',
 "POST /sandbox/v1/conversations/refused/commands\n"
 . '{"command":"mock: seen"}']
--- headers
Content-Type: application/json
--- error_code eval
[503, 200]
--- response_body_like eval
['at_capacity', qr/\[\\"COMMAND\\", \\"COMMAND\\"\]/]



=== TEST 13: a frame of an unknown type
--- command: mock: head frame=99,abc
--- json
outcome = "runner_lost"
--- error_log
[error]



=== TEST 14: a frame of an unknown type before HEAD
--- command: mock: frame=99,abc
--- error_code_like: ^50[023]$
--- error_log
[error]



=== TEST 15: a frame that says 4 GiB
--- command: mock: head raw=%FF%FF%FF%FF%02
--- json
outcome = "runner_lost"
--- error_log
[error]



=== TEST 16: a STDOUT frame of one byte too many
--- command: mock: head raw=%00%01%00%09%02 linger
--- json
outcome = "runner_lost"
--- error_log
[error]



=== TEST 17: a second HEAD
--- command: mock: head head
--- json
outcome = "runner_lost"
--- error_log
[error]



=== TEST 18: ERROR after HEAD
--- command: mock: head error=at_capacity
--- json
outcome = "runner_lost"
--- error_log
[error]



=== TEST 19: output before HEAD
--- command: mock: nohead stdout=x
--- error_code_like: ^50[023]$
--- error_log
[error]



=== TEST 20: RESULT before HEAD
--- command: mock: nohead result
--- error_code_like: ^50[023]$
--- error_log
[error]



=== TEST 21: a sequence number that is wrong
--- command: mock: stdout=x frame=2,%00%00%00%00%00%00%00%09y
--- json
outcome = "runner_lost"
--- error_log
[error]



=== TEST 22: bytes after the RESULT
--- command: mock: stdout=x result raw=abc
--- json_status: 200
--- json
exitCode = 0
stdout = "x"



=== TEST 23: two RESULTs
--- command: mock: stdout=x result result
--- json
exitCode = 0
stdout = "x"



=== TEST 24: a RESULT with a field cut short
--- command: mock: head frame=7,%00%42%00%00%00%08%00
--- json
outcome = "runner_lost"
--- error_log
[error]



=== TEST 25: a RESULT with a number of three bytes
--- command: mock: head frame=7,%00%42%00%00%00%03abc
--- json
outcome = "runner_lost"
--- error_log
[error]



=== TEST 26: a RESULT without an outcome
--- command: mock: head without=outcome
--- json
outcome = "runner_lost"
--- error_log
[error]



=== TEST 27: an outcome beyond the last
--- command: mock: head outcome=99
--- json
outcome = "runner_lost"
--- error_log
[error]



=== TEST 28: a GAP of a stream that does not exist
--- command: mock: head frame=4,%00%00%00%00%00%00%00%01%09%00%00%00%00%00%00%00%05
--- json
outcome = "runner_lost"
--- error_log
[error]



=== TEST 29: more output than was asked for does not fill the memory
--- location
sandbox_output 4k;
--- command: mock: fill=stdout,x,1000000
--- json
stdoutBytes ~ .



=== TEST 30: an ERROR with a code that is no word
--- command: mock: error=%22%0A%00
--- error_code_like: ^50[023]$



=== TEST 31: the runner refuses and closes without reading a long request
--- call eval
"POST v1/conversations/C/commands\n{\"command\":\"mock: noread error=at_capacity\",\"stdin\":\"" . "x" x 3000000 . "\"}"
--- error_code_like: ^503$
--- no_error_log
[alert]
[emerg]
