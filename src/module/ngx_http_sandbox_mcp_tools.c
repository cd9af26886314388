/*
 * The tools: names, what they take and what they give back.  This table is
 * what tools/list tells and what a call is judged by; words are for models.
 */

#include "ngx_http_sandbox_mcp.h"


#define STRING    NGX_HTTP_SANDBOX_MCP_STRING
#define INTEGER   NGX_HTTP_SANDBOX_MCP_INTEGER
#define BOOLEAN   NGX_HTTP_SANDBOX_MCP_BOOLEAN
#define STRINGS   NGX_HTTP_SANDBOX_MCP_STRINGS

#define ANY       NGX_HTTP_SANDBOX_MCP_ANY
#define PLAIN     NGX_HTTP_SANDBOX_MCP_PLAIN
#define FILLED    NGX_HTTP_SANDBOX_MCP_FILLED
#define ID        NGX_HTTP_SANDBOX_MCP_ID
#define BASE64    NGX_HTTP_SANDBOX_MCP_BASE64

/* schemas of what is given back */

#define TEXT      "{\"type\":\"string\"}"
#define TEXT_0    "{\"type\":[\"string\",\"null\"]}"
#define NUMBER    "{\"type\":\"integer\"}"
#define NUMBER_0  "{\"type\":[\"integer\",\"null\"]}"
#define FLAG      "{\"type\":\"boolean\"}"

#define PATH      "A path as a command would have it: relative to "          \
                  "/home/sandbox, or absolute."


/* run_command */

static const ngx_http_sandbox_mcp_field_t  ngx_http_sandbox_mcp_run_in[] = {

    { "command", STRING, 1, FILLED, 0, 0,
      "Text for bash. Files and background processes stay from one command "
      "to the next, variables and the directory do not." },

    { "cwd", STRING, 0, FILLED, 0, 0,
      "Where it runs: an absolute path below /home/sandbox (the default), "
      "/skills or /tmp." },

    { "timeoutSeconds", INTEGER, 0, ANY, 1, 0,
      "Wall clock for all of its processes; above the server's cap it is "
      "lowered, and the result says to what." },

    { "env", NGX_HTTP_SANDBOX_MCP_ENVIRONMENT, 0, PLAIN, 0, 512,
      "Variables for this command, beside the usual ones." },

    { "stdin", STRING, 0, PLAIN, 0, 0,
      "What it reads from its standard input." },

    { "background", BOOLEAN, 0, ANY, 0, 0,
      "Answer as soon as it runs: for a server, or a job that takes long. Ask "
      "for its result by the same call with the same commandId." },

    { "fresh", BOOLEAN, 0, ANY, 0, 0,
      "Replace the sandbox by an empty one first; attachments come back." },

    { "commandId", STRING, 0, ID, 0, 0,
      "A name of your own for this run. The same call with the same name "
      "again waits for the first run and answers its result, it never runs "
      "twice: use it when an answer was lost." },

    { "target", NGX_HTTP_SANDBOX_MCP_TARGET, 0, ANY, 0, 0,
      "Best left out: the command runs in this conversation's sandbox. "
      "{\"fresh\":true} is as fresh above; an id says which sandbox it must "
      "be." },

    { NULL, 0, 0, 0, 0, 0, NULL }
};


static const ngx_http_sandbox_mcp_member_t  ngx_http_sandbox_mcp_run_out[] = {
    { "commandId", 1, TEXT_0 },
    { "sandboxId", 1, TEXT_0 },
    { "cwd", 1, TEXT_0 },
    { "exitCode", 0, NUMBER_0 },
    { "signal", 0, TEXT_0 },
    { "outcome", 0, "{\"enum\":[\"exit\",\"signal\",\"timeout\","
      "\"cpu_limit\",\"oom\",\"output_limit\",\"disk_full\",\"cancelled\","
      "\"sandbox_deleted\",\"runner_lost\",null]}" },
    { "stdout", 0, TEXT_0 },
    { "stderr", 0, TEXT_0 },
    { "stdoutBytes", 0, NUMBER },
    { "stderrBytes", 0, NUMBER },
    { "truncated", 0, FLAG },
    { "binaryStripped", 0, FLAG },
    { "timedOut", 0, FLAG },
    { "timeoutSeconds", 1, NUMBER_0 },
    { "durationMs", 0, NUMBER_0 },
    { "queuedMs", 1, NUMBER_0 },
    { "cpuMs", 0, NUMBER_0 },
    { "memoryPeakBytes", 0, NUMBER_0 },
    { "backgroundProcesses", 0, NUMBER_0 },
    { "sandboxCreated", 1, FLAG },
    { "outputExpired", 0, FLAG },
    { "state", 0, "{\"enum\":[\"queued\",\"running\",\"ended\"]}" },
    { "seq", 0, NUMBER_0 },
    { "acceptedAt", 0, TEXT_0 },
    { "startedAt", 0, TEXT_0 },
    { "endedAt", 0, TEXT_0 },
    { "stagingNotices", 1, "{\"type\":\"array\",\"items\":{"
      "\"type\":\"object\",\"properties\":{\"name\":" TEXT ",\"code\":" TEXT
      ",\"detail\":" TEXT "},\"required\":[\"name\",\"code\",\"detail\"],"
      "\"additionalProperties\":false}}" },
    { NULL, 0, NULL }
};


static ngx_uint_t ngx_http_sandbox_mcp_usable(ngx_http_request_t *r,
    const ngx_http_sandbox_mcp_tool_t *tool);


static const ngx_http_sandbox_mcp_tool_t  ngx_http_sandbox_mcp_table[] = {

    { ngx_string("run_command"), ngx_string("mcp.run_command"),
      "Run a command",
      "Runs a shell command in this conversation's sandbox: Debian, bash, "
      "python3 with numpy, pandas and matplotlib, git, ripgrep, a C compiler. "
      "Files of the user lie in /home/sandbox/attachments. A command that "
      "fails is no error of the tool: look at exitCode and stderr. Output is "
      "cut in its middle when it is long; send it to a file and look into that "
      "with read_file or search_files. What the user is to have, save with "
      "download_file.",
      "{\"readOnlyHint\":false,\"destructiveHint\":true,"
      "\"idempotentHint\":false,\"openWorldHint\":false}",
      0, ngx_http_sandbox_mcp_run_in, ngx_http_sandbox_mcp_run_out,
      ngx_http_sandbox_mcp_run_command },

    { ngx_null_string, ngx_null_string, NULL, NULL, NULL, 0, NULL, NULL, NULL }
};


const ngx_http_sandbox_mcp_tool_t *
ngx_http_sandbox_mcp_tool(ngx_http_request_t *r, const char *name, size_t len)
{
    const ngx_http_sandbox_mcp_tool_t  *tool;

    for (tool = ngx_http_sandbox_mcp_table; tool->name.len; tool++) {

        if (tool->name.len == len
            && ngx_memcmp(tool->name.data, name, len) == 0)
        {
            return ngx_http_sandbox_mcp_usable(r, tool) ? tool : NULL;
        }
    }

    return NULL;
}


void
ngx_http_sandbox_mcp_tools(ngx_http_request_t *r,
    ngx_http_sandbox_mcp_text_t *text, ngx_uint_t conversation)
{
    ngx_uint_t                          n;
    const ngx_http_sandbox_mcp_tool_t  *tool;

    n = 0;
    ngx_http_sandbox_mcp_words(text, "\"tools\":[");

    for (tool = ngx_http_sandbox_mcp_table; tool->name.len; tool++) {

        if (!ngx_http_sandbox_mcp_usable(r, tool)) {
            continue;
        }

        ngx_http_sandbox_mcp_format(text, "%s{\"name\":\"%V\","
                                    "\"title\":\"%s\",\"description\":\"",
                                    n++ ? "," : "", &tool->name, tool->title);
        ngx_http_sandbox_mcp_escape(text, tool->description,
                                    ngx_strlen(tool->description));
        ngx_http_sandbox_mcp_words(text, "\",");
        ngx_http_sandbox_mcp_schemas(text, tool, conversation);
        ngx_http_sandbox_mcp_words(text, ",\"annotations\":");
        ngx_http_sandbox_mcp_words(text, tool->annotations);
        ngx_http_sandbox_mcp_words(text, "}");
    }

    ngx_http_sandbox_mcp_words(text, "]");
}


/* what this location can't do is not shown */

static ngx_uint_t
ngx_http_sandbox_mcp_usable(ngx_http_request_t *r,
    const ngx_http_sandbox_mcp_tool_t *tool)
{
    ngx_http_sandbox_loc_conf_t  *slcf;

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sandbox_module);

    return !tool->store || slcf->store;
}
