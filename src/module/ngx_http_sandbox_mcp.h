/*
 * MCP: a JSON-RPC message in, a tool of the sandbox called in this process,
 * its result out as JSON-RPC.  What its files have in common, one section a
 * file.  Operations end in a `render` of the tool instead of HTTP's, problems
 * in results that say so.
 */

#ifndef _NGX_HTTP_SANDBOX_MCP_H_INCLUDED_
#define _NGX_HTTP_SANDBOX_MCP_H_INCLUDED_


#include "ngx_http_sandbox_stage.h"


#define NGX_HTTP_SANDBOX_MCP_MODERN   "2026-07-28"
#define NGX_HTTP_SANDBOX_MCP_LEGACY   "2025-11-25"   /* the latest of those */
#define NGX_HTTP_SANDBOX_MCP_ASSUMED  "2025-03-26"   /* without a header */

/* of JSON-RPC, and of the revision 2026-07-28 */

#define NGX_HTTP_SANDBOX_MCP_PARSE        -32700
#define NGX_HTTP_SANDBOX_MCP_INVALID      -32600
#define NGX_HTTP_SANDBOX_MCP_NO_METHOD    -32601
#define NGX_HTTP_SANDBOX_MCP_PARAMS       -32602
#define NGX_HTTP_SANDBOX_MCP_HEADERS      -32020
#define NGX_HTTP_SANDBOX_MCP_VERSION      -32022

/* bytes: what a model is shown of a stream, of a file, and as an image */

#define NGX_HTTP_SANDBOX_MCP_OUTPUT   (32 * 1024)
#define NGX_HTTP_SANDBOX_MCP_TEXT     (64 * 1024)
#define NGX_HTTP_SANDBOX_MCP_IMAGE    (3840 * 1024)  /* 5 MiB of base64 */

#define NGX_HTTP_SANDBOX_MCP_LABEL    32             /* hex digits */


/* JSON that is written; `failed` once there is no room or no memory */

typedef struct {
    ngx_pool_t                    *pool;
    u_char                        *data;
    size_t                         len;
    size_t                         size;
    ngx_uint_t                     failed;
} ngx_http_sandbox_mcp_text_t;


/* what a value must be; by this a schema is written, and a call judged */

typedef enum {
    NGX_HTTP_SANDBOX_MCP_STRING = 0,
    NGX_HTTP_SANDBOX_MCP_INTEGER,
    NGX_HTTP_SANDBOX_MCP_BOOLEAN,
    NGX_HTTP_SANDBOX_MCP_STRINGS,                /* an array */
    NGX_HTTP_SANDBOX_MCP_ENVIRONMENT,            /* an object of strings */
    NGX_HTTP_SANDBOX_MCP_TARGET
} ngx_http_sandbox_mcp_type_e;


/* of strings; in the order of ngx_http_sandbox_mcp_rules */

typedef enum {
    NGX_HTTP_SANDBOX_MCP_ANY = 0,
    NGX_HTTP_SANDBOX_MCP_PLAIN,                  /* without NUL */
    NGX_HTTP_SANDBOX_MCP_FILLED,                 /* nor empty */
    NGX_HTTP_SANDBOX_MCP_ID,
    NGX_HTTP_SANDBOX_MCP_BASE64,
    NGX_HTTP_SANDBOX_MCP_CONVERSATION
} ngx_http_sandbox_mcp_rule_e;


typedef struct {
    const char                    *name;         /* NULL: the last */
    ngx_http_sandbox_mcp_type_e    type;
    ngx_uint_t                     required;
    ngx_http_sandbox_mcp_rule_e    rule;         /* of strings */
    int64_t                        min;          /* of integers */
    int64_t                        max;          /* 0: none; of an array */
    const char                    *description;
} ngx_http_sandbox_mcp_field_t;


typedef struct {
    const char                    *name;         /* NULL: the last */
    ngx_uint_t                     required;
    const char                    *schema;       /* as JSON */
} ngx_http_sandbox_mcp_member_t;


typedef struct {
    ngx_str_t                      name;
    ngx_str_t                      operation;    /* $sandbox_operation */
    const char                    *title;
    const char                    *description;
    const char                    *annotations;  /* as JSON */
    ngx_uint_t                     store;        /* works only with one */
    const ngx_http_sandbox_mcp_field_t   *input;
    const ngx_http_sandbox_mcp_member_t  *output;

    /*
     * Arguments are as the schema wants them.  What takes its time with large
     * ones, maybe in a thread, where nothing is logged; NULL: nothing does.
     * NGX_DECLINED with the refusal in ctx->problem; NGX_ERROR: no memory.
     */
    ngx_int_t                    (*prepare)(ngx_http_request_t *r,
                                            ngx_http_sandbox_ctx_t *ctx);

    /* Takes over the reference to the request with NGX_OK; else likewise. */
    ngx_int_t                    (*start)(ngx_http_request_t *r,
                                          ngx_http_sandbox_ctx_t *ctx);
} ngx_http_sandbox_mcp_tool_t;


typedef struct ngx_http_sandbox_mcp_read_s  ngx_http_sandbox_mcp_read_t;
typedef struct ngx_http_sandbox_mcp_search_s  ngx_http_sandbox_mcp_search_t;


struct ngx_http_sandbox_mcp_s {
    json_t                        *root;         /* released with the pool */
    json_t                        *params;       /* NULL: none */
    json_t                        *arguments;    /* an object */
    ngx_str_t                      id;           /* JSON; empty: none */
    ngx_uint_t                     method;
    const ngx_http_sandbox_mcp_tool_t  *tool;

    /* refused as a message: JSON-RPC's error, and the status that it has */
    ngx_int_t                      error;        /* 0: it was not */
    ngx_uint_t                     status;
    ngx_str_t                      message;
    ngx_str_t                      data;         /* JSON, or empty */

    /* of tools */
    ngx_str_t                      path;         /* below root */
    ngx_uint_t                     root_id;      /* sandbox_root_e */
    ngx_str_t                      shown;        /* the path, absolute */
    ngx_str_t                      wanted;       /* the conversation */
    ngx_str_t                      target;       /* id of the sandbox */
    ngx_str_t                      head;         /* of a command that waits */
    ngx_str_t                      body;
    ngx_uint_t                     flags;
    ngx_http_sandbox_store_op_t   *op;           /* for a thread */
    ngx_http_sandbox_mcp_read_t   *read;
    ngx_http_sandbox_mcp_search_t *search;

    ngx_recv_pt                    recv;         /* the connection's own */
    ngx_http_upstream_handler_pt   event;        /* the upstream's own */

    unsigned                       modern:1;
    unsigned                       response:1;   /* of the client's: ignored */
    unsigned                       calling:1;    /* problems are results */
    unsigned                       cancelling:1; /* and of no concern */
    unsigned                       waiting:1;    /* the header is on its way */
};


/* ngx_http_sandbox_mcp.c: the message, and what needs no sandbox */

ngx_int_t ngx_http_sandbox_mcp_handler(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
ngx_int_t ngx_http_sandbox_mcp_parse(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
void ngx_http_sandbox_mcp_run(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);

/* A header of that name; NGX_DECLINED: none, NGX_ERROR: several. */
ngx_int_t ngx_http_sandbox_mcp_header(ngx_http_request_t *r,
    const char *name, ngx_str_t *value);


/* ngx_http_sandbox_mcp_origin.c: directives, and who may call */

char *ngx_http_sandbox_conf_mcp_origins(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_sandbox_conf_mcp_conversation(ngx_conf_t *cf,
    ngx_command_t *cmd, void *conf);

/* Of the server, for a location that serves; NGX_ERROR: no memory. */
ngx_int_t ngx_http_sandbox_mcp_names(ngx_conf_t *cf,
    ngx_http_sandbox_loc_conf_t *conf);

/* OPTIONS. */
ngx_int_t ngx_http_sandbox_mcp_preflight(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);

/*
 * Host and Origin; adds what a browser wants to hear.  NGX_DECLINED with the
 * refusal in ctx->problem; NGX_ERROR: no memory.
 */
ngx_int_t ngx_http_sandbox_mcp_origin(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);


/* ngx_http_sandbox_mcp_tools.c: the table */

const ngx_http_sandbox_mcp_tool_t *ngx_http_sandbox_mcp_tool(
    ngx_http_request_t *r, const char *name, size_t len);

/* "tools":[...] */
void ngx_http_sandbox_mcp_tools(ngx_http_request_t *r,
    ngx_http_sandbox_mcp_text_t *text, ngx_uint_t conversation);


/* ngx_http_sandbox_mcp_check.c: calls judged by the table, schemas of it */

/* "inputSchema":{...},"outputSchema":{...} */
void ngx_http_sandbox_mcp_schemas(ngx_http_sandbox_mcp_text_t *text,
    const ngx_http_sandbox_mcp_tool_t *tool, ngx_uint_t conversation);

/* NGX_DECLINED with the refusal in ctx->problem; NGX_ERROR: no memory. */
ngx_int_t ngx_http_sandbox_mcp_check(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_uint_t conversation);


/* ngx_http_sandbox_mcp_reply.c */

void ngx_http_sandbox_mcp_text(ngx_http_sandbox_mcp_text_t *text,
    ngx_pool_t *pool);
void ngx_http_sandbox_mcp_put(ngx_http_sandbox_mcp_text_t *text,
    const void *p, size_t n);

/* Room for n bytes, of which text->len is to know; NULL: it failed. */
u_char *ngx_http_sandbox_mcp_room(ngx_http_sandbox_mcp_text_t *text,
    size_t n);


void ngx_http_sandbox_mcp_words(ngx_http_sandbox_mcp_text_t *text,
    const char *words);

/* At most 512 bytes. */
void ngx_http_sandbox_mcp_format(ngx_http_sandbox_mcp_text_t *text,
    const char *fmt, ...);

/* Bytes as the inside of a JSON string; 1: some were no text. */
ngx_uint_t ngx_http_sandbox_mcp_escape(ngx_http_sandbox_mcp_text_t *text,
    const void *p, size_t n);

/* {"type":"text","text":"...: until "} is put behind it */
#define NGX_HTTP_SANDBOX_MCP_OPEN    "{\"type\":\"text\",\"text\":\""
#define NGX_HTTP_SANDBOX_MCP_CLOSE   "\"}"

/*
 * Into ctx->answer; NGX_ERROR: no memory.  A result's members; a tool's
 * content and structuredContent (what is in ctx->answer if it is NULL); what
 * is in ctx->problem, as a tool's result; a message that was refused; 202.
 */
ngx_int_t ngx_http_sandbox_mcp_result(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_mcp_text_t *members);
ngx_int_t ngx_http_sandbox_mcp_content(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_mcp_text_t *content,
    ngx_http_sandbox_mcp_text_t *structured);
ngx_int_t ngx_http_sandbox_mcp_failure(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
ngx_int_t ngx_http_sandbox_mcp_error(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
void ngx_http_sandbox_mcp_nothing(ngx_http_sandbox_ctx_t *ctx);


/* ngx_http_sandbox_request.c */

/*
 * A command's fields of an object that must stay, into ctx->wire, as
 * ngx_http_sandbox_request_parse() does; of at most 64 bytes a label.
 */
ngx_int_t ngx_http_sandbox_request_object(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, json_t *object, ngx_str_t *label);


/* ngx_http_sandbox_route.c */

/* 1: it may be the id of a conversation. */
ngx_uint_t ngx_http_sandbox_route_conversation(const ngx_str_t *id);


/* ngx_http_sandbox_mcp_call.c: calls, run_command, its end by a message */

void ngx_http_sandbox_mcp_call(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
void ngx_http_sandbox_mcp_cancel(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
ngx_int_t ngx_http_sandbox_mcp_prepare_command(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
ngx_int_t ngx_http_sandbox_mcp_run_command(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);

/* 1: the conversation must be among the arguments. */
ngx_uint_t ngx_http_sandbox_mcp_argument(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);

/* Starts ctx->wire with the fields of w; for a tool's start. */
ngx_int_t ngx_http_sandbox_mcp_send(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, sandbox_writer_t *w);

/*
 * RESULT of a step that has a next one is here.  NGX_OK: the upstream is
 * silent and the next step begins from an event.
 */
ngx_int_t ngx_http_sandbox_mcp_step(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);


/* ngx_http_sandbox_mcp_wait.c: answers that are begun before they are there */

/* 1: it is time to. */
ngx_uint_t ngx_http_sandbox_mcp_waits(ngx_http_sandbox_ctx_t *ctx);

/* As the upstream's filters, once ctx->mcp->waiting is set. */
void ngx_http_sandbox_mcp_wait(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
ngx_int_t ngx_http_sandbox_mcp_filter(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, size_t bytes);


/* ngx_http_sandbox_mcp_files.c: tools, and what those with a path share */

ngx_int_t ngx_http_sandbox_mcp_save_file(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
ngx_int_t ngx_http_sandbox_mcp_prepare_upload(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
ngx_int_t ngx_http_sandbox_mcp_upload_file(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
ngx_int_t ngx_http_sandbox_mcp_delete_file(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
ngx_int_t ngx_http_sandbox_mcp_download_file(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);

/* "path" into ctx->mcp; NGX_DECLINED with the refusal. */
ngx_int_t ngx_http_sandbox_mcp_path(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);

/* A head with the path and room for `size` more bytes; likewise. */
ngx_int_t ngx_http_sandbox_mcp_file(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, sandbox_writer_t *w, ngx_uint_t operation,
    size_t size);

/* Sends FILE_WRITE, if the file still has that etag (NULL: in any case). */
ngx_int_t ngx_http_sandbox_mcp_write(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_str_t *content, ngx_str_t *etag,
    ngx_int_t (*render)(ngx_http_request_t *r, ngx_http_sandbox_ctx_t *ctx));

/* {"path":... of a file that was written, without the brace at its end */
void ngx_http_sandbox_mcp_written(ngx_http_sandbox_mcp_text_t *text,
    ngx_http_sandbox_ctx_t *ctx);

/* The refusal "file_too_large"; NGX_DECLINED, or NGX_ERROR. */
ngx_int_t ngx_http_sandbox_mcp_too_large(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, off_t most);

/* A file is in the Files panel; for ngx_http_finalize_request(). */
ngx_int_t ngx_http_sandbox_mcp_saved(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_store_op_t *op);


/* ngx_http_sandbox_mcp_read.c */

ngx_int_t ngx_http_sandbox_mcp_read_file(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
ngx_int_t ngx_http_sandbox_mcp_edit_file(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);


/* ngx_http_sandbox_mcp_search.c, ngx_http_sandbox_mcp_skill.c */

ngx_int_t ngx_http_sandbox_mcp_search_files(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
ngx_int_t ngx_http_sandbox_mcp_load_skill(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);


/* ngx_http_sandbox_save.c, ngx_http_sandbox_link.c */

/*
 * A file of the sandbox to the Files panel, under its own name if none is
 * given; as a tool's start.
 */
ngx_int_t ngx_http_sandbox_save_begin(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_str_t *path, ngx_str_t *name,
    ngx_uint_t mode);

/* The path of a link for that content of a file, until then; NGX_ERROR. */
ngx_int_t ngx_http_sandbox_link_sign(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_str_t *name, const uint8_t *sha256,
    uint64_t expires, ngx_str_t *url);


#endif /* _NGX_HTTP_SANDBOX_MCP_H_INCLUDED_ */
