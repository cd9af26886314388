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


#define READS     "{\"readOnlyHint\":true,\"destructiveHint\":false,"       \
                  "\"idempotentHint\":true,\"openWorldHint\":false}"
#define WRITES    "{\"readOnlyHint\":false,\"destructiveHint\":true,"       \
                  "\"idempotentHint\":true,\"openWorldHint\":false}"


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


/* files */

static const ngx_http_sandbox_mcp_field_t  ngx_http_sandbox_mcp_upload_in[] = {
    { "path", STRING, 1, FILLED, 0, 0, PATH " Folders above it are made." },
    { "contentBase64", STRING, 1, BASE64, 0, 0,
      "All of the file's bytes, in base64." },
    { NULL, 0, 0, 0, 0, 0, NULL }
};


static const ngx_http_sandbox_mcp_field_t  ngx_http_sandbox_mcp_save_in[] = {
    { "path", STRING, 1, FILLED, 0, 0, PATH " Folders above it are made." },
    { "content", STRING, 1, ANY, 0, 0,
      "All of the file's text; what was there is replaced." },
    { NULL, 0, 0, 0, 0, 0, NULL }
};


static const ngx_http_sandbox_mcp_member_t  ngx_http_sandbox_mcp_save_out[] = {
    { "path", 1, TEXT },
    { "size", 1, NUMBER },
    { "etag", 1, TEXT },
    { "modifiedAt", 1, TEXT_0 },
    { "created", 1, FLAG },
    { NULL, 0, NULL }
};


static const ngx_http_sandbox_mcp_field_t
    ngx_http_sandbox_mcp_download_in[] =
{
    { "path", STRING, 1, FILLED, 0, 0, PATH },
    { "name", STRING, 0, FILLED, 0, 0,
      "What the user sees it called; the file's own name if left out." },
    { "overwrite", BOOLEAN, 0, ANY, 0, 0,
      "Replace a file of that name in the Files panel." },
    { NULL, 0, 0, 0, 0, 0, NULL }
};


static const ngx_http_sandbox_mcp_member_t
    ngx_http_sandbox_mcp_download_out[] =
{
    { "name", 1, TEXT },
    { "nameBase64", 0, TEXT },
    { "size", 1, NUMBER },
    { "type", 1, TEXT },
    { "etag", 1, TEXT },
    { "createdAt", 1, TEXT_0 },
    { "modifiedAt", 1, TEXT_0 },
    { "commandId", 0, TEXT },
    { "created", 1, FLAG },
    { "link", 1, "{\"type\":\"object\",\"properties\":{\"url\":" TEXT
      ",\"expiresAt\":" TEXT_0 "},\"required\":[\"url\",\"expiresAt\"],"
      "\"additionalProperties\":false}" },
    { NULL, 0, NULL }
};


static const ngx_http_sandbox_mcp_field_t  ngx_http_sandbox_mcp_search_in[] = {
    { "pattern", STRING, 0, FILLED, 0, 0,
      "A regular expression as ripgrep has it (no look-around), for each "
      "line. Left out, names of files are listed." },
    { "path", STRING, 0, FILLED, 0, 0,
      "The folder or file to look through; /home/sandbox if left out." },
    { "glob", STRINGS, 0, FILLED, 0, 16,
      "Which names to look at, such as [\"*.py\", \"!test_*\"]; \"!\" leaves "
      "out. Hidden files only if they are named." },
    { "literal", BOOLEAN, 0, ANY, 0, 0,
      "The pattern is plain text, no expression." },
    { "ignoreCase", BOOLEAN, 0, ANY, 0, 0, "Upper and lower case are alike." },
    { "limit", INTEGER, 0, ANY, 1, 1000,
      "How many matches to show, 100 if left out." },
    { NULL, 0, 0, 0, 0, 0, NULL }
};


static const ngx_http_sandbox_mcp_member_t
    ngx_http_sandbox_mcp_search_out[] =
{
    { "path", 1, TEXT },
    { "matches", 1, "{\"type\":\"array\",\"items\":{\"type\":\"object\","
      "\"properties\":{\"path\":" TEXT ",\"line\":" NUMBER_0 ",\"text\":"
      TEXT_0 ",\"type\":" TEXT_0 ",\"size\":" NUMBER_0 "},\"required\":["
      "\"path\",\"line\",\"text\",\"type\",\"size\"],"
      "\"additionalProperties\":false}}" },
    { "shown", 1, NUMBER },
    { "leftOut", 1, NUMBER },
    { "more", 1, FLAG },
    { NULL, 0, NULL }
};


static const ngx_http_sandbox_mcp_field_t  ngx_http_sandbox_mcp_read_in[] = {
    { "path", STRING, 1, FILLED, 0, 0, PATH },
    { "offset", INTEGER, 0, ANY, 1, 0,
      "The first line to read, counted from 1." },
    { "limit", INTEGER, 0, ANY, 1, 5000,
      "How many lines, 2000 if left out; 64 KiB in all." },
    { NULL, 0, 0, 0, 0, 0, NULL }
};


static const ngx_http_sandbox_mcp_member_t  ngx_http_sandbox_mcp_read_out[] = {
    { "path", 1, TEXT },
    { "size", 1, NUMBER },
    { "etag", 1, TEXT },
    { "type", 1, TEXT },
    { "text", 1, TEXT_0 },
    { "firstLine", 1, NUMBER_0 },
    { "lastLine", 1, NUMBER_0 },
    { "nextOffset", 1, NUMBER_0 },
    { "truncated", 1, FLAG },
    { NULL, 0, NULL }
};


static const ngx_http_sandbox_mcp_field_t  ngx_http_sandbox_mcp_edit_in[] = {
    { "path", STRING, 1, FILLED, 0, 0, PATH },
    { "old_string", STRING, 1, FILLED, 0, 0,
      "The text to be replaced, exactly as it stands in the file, blanks and "
      "line ends too; enough of it that it is there once." },
    { "new_string", STRING, 1, ANY, 0, 0, "What takes its place." },
    { "replace_all", BOOLEAN, 0, ANY, 0, 0,
      "Replace it wherever it stands, not once." },
    { NULL, 0, 0, 0, 0, 0, NULL }
};


static const ngx_http_sandbox_mcp_member_t  ngx_http_sandbox_mcp_edit_out[] = {
    { "path", 1, TEXT },
    { "size", 1, NUMBER },
    { "etag", 1, TEXT },
    { "modifiedAt", 1, TEXT_0 },
    { "replacements", 1, NUMBER },
    { NULL, 0, NULL }
};


static const ngx_http_sandbox_mcp_field_t  ngx_http_sandbox_mcp_delete_in[] = {
    { "path", STRING, 1, FILLED, 0, 0, PATH },
    { "recursive", BOOLEAN, 0, ANY, 0, 0,
      "Also a folder that is not empty, with all that is in it." },
    { NULL, 0, 0, 0, 0, 0, NULL }
};


static const ngx_http_sandbox_mcp_member_t
    ngx_http_sandbox_mcp_delete_out[] =
{
    { "path", 1, TEXT },
    { "type", 1, TEXT },
    { NULL, 0, NULL }
};


static const ngx_http_sandbox_mcp_field_t  ngx_http_sandbox_mcp_skill_in[] = {
    { "name", STRING, 0, FILLED, 0, 0,
      "The skill's name; left out, the skills that there are are listed." },
    { NULL, 0, 0, 0, 0, 0, NULL }
};


static const ngx_http_sandbox_mcp_member_t
    ngx_http_sandbox_mcp_skill_out[] =
{
    { "name", 0, TEXT },
    { "path", 0, TEXT },
    { "title", 0, TEXT_0 },
    { "description", 0, TEXT_0 },
    { "paths", 0, "{\"type\":\"array\",\"items\":" TEXT "}" },
    { "files", 0, NUMBER },
    { "bytes", 0, NUMBER },
    { "loaded", 0, FLAG },
    { "truncated", 0, FLAG },
    { "instructions", 0, TEXT_0 },
    { "skills", 0, "{\"type\":\"array\",\"items\":{\"type\":\"object\","
      "\"properties\":{\"name\":" TEXT ",\"title\":" TEXT_0
      ",\"description\":" TEXT_0 ",\"loaded\":" FLAG "},\"required\":["
      "\"name\",\"title\",\"description\",\"loaded\"],"
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
      ngx_http_sandbox_mcp_prepare_command, ngx_http_sandbox_mcp_run_command },

    { ngx_string("upload_file"), ngx_string("mcp.upload_file"),
      "Upload a file",
      "Puts a file of any bytes, given in base64, into the sandbox. For text "
      "save_file is the better one; what the user attached is there already.",
      WRITES,
      0, ngx_http_sandbox_mcp_upload_in, ngx_http_sandbox_mcp_save_out,
      ngx_http_sandbox_mcp_prepare_upload, ngx_http_sandbox_mcp_upload_file },

    { ngx_string("download_file"), ngx_string("mcp.download_file"),
      "Give a file to the user",
      "Saves a file of the sandbox to the user's Files panel, where it stays, "
      "and gives back a link to it that is good for 10 minutes. The way to "
      "hand over what was made: charts, tables, documents.",
      WRITES,
      1, ngx_http_sandbox_mcp_download_in, ngx_http_sandbox_mcp_download_out,
      NULL, ngx_http_sandbox_mcp_download_file },

    { ngx_string("search_files"), ngx_string("mcp.search_files"),
      "Search in files",
      "Looks through files of the sandbox for a pattern, or lists their "
      "names; hidden ones (.git, .venv) only where path or glob names them. "
      "Does not wait for a command that runs.",
      READS,
      0, ngx_http_sandbox_mcp_search_in, ngx_http_sandbox_mcp_search_out,
      NULL, ngx_http_sandbox_mcp_search_files },

    { ngx_string("read_file"), ngx_string("mcp.read_file"),
      "Read a file",
      "Lines of a text file of the sandbox, as they are; or an image (PNG, "
      "JPEG, GIF, WebP) to look at, up to 3.75 MiB. Does not wait for a "
      "command that runs.",
      READS,
      0, ngx_http_sandbox_mcp_read_in, ngx_http_sandbox_mcp_read_out,
      NULL, ngx_http_sandbox_mcp_read_file },

    { ngx_string("save_file"), ngx_string("mcp.save_file"),
      "Write a file",
      "Writes a text file of the sandbox: all of it, or nothing if that "
      "fails.",
      WRITES,
      0, ngx_http_sandbox_mcp_save_in, ngx_http_sandbox_mcp_save_out,
      NULL, ngx_http_sandbox_mcp_save_file },

    { ngx_string("edit_file"), ngx_string("mcp.edit_file"),
      "Edit a file",
      "Replaces text in a file of the sandbox, literally. It must be there "
      "exactly once, unless replace_all is set. Nothing is changed when the "
      "file was changed by somebody else meanwhile.",
      WRITES,
      0, ngx_http_sandbox_mcp_edit_in, ngx_http_sandbox_mcp_edit_out,
      NULL, ngx_http_sandbox_mcp_edit_file },

    { ngx_string("delete_file"), ngx_string("mcp.delete_file"),
      "Delete a file",
      "Removes a file or folder of the sandbox; of a link the link, not what "
      "it leads to.",
      WRITES,
      0, ngx_http_sandbox_mcp_delete_in, ngx_http_sandbox_mcp_delete_out,
      NULL, ngx_http_sandbox_mcp_delete_file },

    { ngx_string("load_skill"), ngx_string("mcp.load_skill"),
      "Load a skill",
      "Brings a skill of the server's library, or one that the user put "
      "there, into the sandbox, in /skills/NAME, and gives back its "
      "instructions: read them before you do what the skill is for. Without a "
      "name it tells which skills there are.",
      "{\"readOnlyHint\":false,\"destructiveHint\":false,"
      "\"idempotentHint\":true,\"openWorldHint\":false}",
      1, ngx_http_sandbox_mcp_skill_in, ngx_http_sandbox_mcp_skill_out,
      NULL, ngx_http_sandbox_mcp_load_skill },

    { ngx_null_string, ngx_null_string, NULL, NULL, NULL, 0, NULL, NULL, NULL,
      NULL }
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
