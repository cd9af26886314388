/*
 * What an operation on an engine tells and learns while it is on the wire: the
 * secret of its agent, whether that is the right one, which instance answers,
 * and what of the one before is lost.  Knows no engine's questions.
 */

#include "ngx_http_sandbox_dagger_start.h"
#include "sandbox_store_engine.h"


#define NGX_HTTP_SANDBOX_DAGGER_IDLE     65535   /* seconds, the most */


static void ngx_http_sandbox_dagger_preamble(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, sandbox_preamble_t *preamble);
static void ngx_http_sandbox_dagger_report(ngx_http_request_t *r,
    ngx_http_sandbox_status_e status, const char *reason);
static ngx_int_t ngx_http_sandbox_dagger_refused(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
static void ngx_http_sandbox_dagger_ended(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
static ngx_int_t ngx_http_sandbox_dagger_recorded(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, struct sandbox_store_engine_s *record);
static time_t ngx_http_sandbox_dagger_listed(ngx_http_request_t *r,
    const u_char *session);
static void ngx_http_sandbox_dagger_result(ngx_http_sandbox_session_t *s);
static void ngx_http_sandbox_dagger_note(ngx_http_sandbox_session_t *s,
    uint64_t instance);
static ngx_int_t ngx_http_sandbox_dagger_notice(ngx_http_sandbox_ctx_t *ctx,
    ngx_str_t *code, ngx_str_t *detail);


const ngx_http_sandbox_hooks_t  ngx_http_sandbox_dagger_hooks = {
    ngx_http_sandbox_dagger_preamble,
    ngx_http_sandbox_dagger_report,
    ngx_http_sandbox_dagger_refused,
    ngx_http_sandbox_dagger_ended,
    ngx_http_sandbox_dagger_recorded,
    ngx_http_sandbox_dagger_listed,
    ngx_http_sandbox_dagger_notice
};


static void
ngx_http_sandbox_dagger_preamble(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, sandbox_preamble_t *preamble)
{
    ngx_http_sandbox_session_t  *s;

    s = ctx->dagger;

    /* in seconds, in the place of the base */

    preamble->base = (uint16_t) ngx_min(s->zone->idle / 1000,
                                        NGX_HTTP_SANDBOX_DAGGER_IDLE);

    ngx_memcpy(preamble->key, s->secret, SANDBOX_WIRE_KEY_SIZE);
}


/* whether engines are there their owner says */

static void
ngx_http_sandbox_dagger_report(ngx_http_request_t *r,
    ngx_http_sandbox_status_e status, const char *reason)
{
    ngx_log_debug1(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "http sandbox agent: %ui", (ngx_uint_t) status);
}


/* another one is the session's agent by now, or this one of another owner */

static ngx_int_t
ngx_http_sandbox_dagger_refused(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    ngx_str_t                   *code;
    ngx_http_sandbox_session_t  *s;

    s = ctx->dagger;
    code = &ctx->problem.code;

    if ((code->len != sizeof("fenced") - 1
         || ngx_strncmp(code->data, "fenced", code->len) != 0)
        && (code->len != sizeof("unauthorized_peer") - 1
            || ngx_strncmp(code->data, "unauthorized_peer", code->len) != 0))
    {
        return NGX_DECLINED;
    }

    ngx_http_sandbox_agent_change(s->zone, ctx->session,
                                  NGX_HTTP_SANDBOX_AGENT_SILENT, &s->agent);

    if (s->sends > 1) {
        return NGX_DECLINED;
    }

    if (!ngx_http_sandbox_peer_repeatable(s)) {
        ngx_http_sandbox_refuse(ctx, NGX_HTTP_SERVICE_UNAVAILABLE,
                                "runner_lost",
                                "The sandbox has another agent by now; "
                                "nothing was started.");
        ctx->problem.retry_after = NGX_HTTP_SANDBOX_RETRY_AFTER;
        return NGX_DECLINED;
    }

    ngx_http_sandbox_peer_repeat(s);

    return NGX_OK;
}


static void
ngx_http_sandbox_dagger_ended(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    ngx_http_sandbox_session_t  *s;

    s = ctx->dagger;

    if (ctx->problem.status) {
        return;
    }

    /* who reads the answer slowly keeps no other command from running */

    ngx_http_sandbox_dagger_give(s);

    switch (ctx->wire.operation) {

    case SANDBOX_OPERATION_DELETE:
        ngx_http_sandbox_agent_change(s->zone, ctx->session,
                                      NGX_HTTP_SANDBOX_AGENT_DELETED,
                                      &s->agent);
        break;

    case SANDBOX_OPERATION_COMMAND:
        ngx_http_sandbox_dagger_result(s);
        break;

    case SANDBOX_OPERATION_RESET:
        ngx_http_sandbox_dagger_note(s,
                              ctx->wire.result.number[SANDBOX_TAG_INSTANCE]);
        break;

    case SANDBOX_OPERATION_FILE_WRITE:

        /* where it is; what is new about it the next command tells */

        ngx_http_sandbox_dagger_note(s, 0);
    }
}


/*
 * A sandbox that was made for this, though there was one and nobody wanted a
 * fresh one: the engine has lost it.
 */

static void
ngx_http_sandbox_dagger_result(ngx_http_sandbox_session_t *s)
{
    uint64_t                    instance;
    ngx_http_sandbox_agent_t    agent;
    ngx_http_sandbox_result_t  *result;

    result = &s->ctx->wire.result;
    instance = result->number[SANDBOX_TAG_INSTANCE];

    if (ngx_http_sandbox_agent_find(s->zone, s->ctx->session, &agent, 0)
        == NGX_OK)
    {
        s->agent.instance = agent.instance;
        s->agent.stored = agent.stored;
    }

    if (result->number[SANDBOX_TAG_CREATED] && s->agent.instance
        && instance > s->agent.instance && !s->fresh
        && s->lost == NGX_HTTP_SANDBOX_KEPT)
    {
        s->lost = NGX_HTTP_SANDBOX_WIPED;
        ngx_log_error(NGX_LOG_WARN, s->request->connection->log, 0,
                      "sandbox: engine \"%V\" has lost the files of a "
                      "conversation: an engine that is killed wipes its "
                      "volumes when it starts", &s->engine->name);
    }

    if (result->number[SANDBOX_TAG_OUTCOME] != SANDBOX_OUTCOME_DELETED) {
        ngx_http_sandbox_dagger_note(s, instance);
    }
}


/* zone and store learn of it, unless they know; instances rise */

static void
ngx_http_sandbox_dagger_note(ngx_http_sandbox_session_t *s, uint64_t instance)
{
    ngx_uint_t  same;

    if (instance <= s->agent.instance) {
        instance = s->agent.instance;
    }

    same = (s->agent.stored && instance == s->agent.instance);

    if (same && s->agent.lost == NGX_HTTP_SANDBOX_KEPT) {
        return;
    }

    s->agent.instance = instance;
    s->agent.stored = 1;

    /* a command's result has told it */

    if (s->ctx->wire.operation == SANDBOX_OPERATION_COMMAND) {
        s->agent.lost = NGX_HTTP_SANDBOX_KEPT;
    }

    ngx_http_sandbox_agent_change(s->zone, s->ctx->session,
                                  NGX_HTTP_SANDBOX_AGENT_RESULT, &s->agent);

    if (!same) {
        ngx_http_sandbox_record_write(s, instance);
    }
}


static ngx_int_t
ngx_http_sandbox_dagger_recorded(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, struct sandbox_store_engine_s *record)
{
    ngx_http_sandbox_session_t  *s;

    s = ngx_http_sandbox_dagger_session(r, ctx);
    if (s == NULL) {
        return NGX_ERROR;
    }

    s->record = record;
    s->recorded = (record->name_len != 0);

    ngx_http_sandbox_record_known(s);

    return NGX_OK;
}


/* to ask all engines would start all agents */

static time_t
ngx_http_sandbox_dagger_listed(ngx_http_request_t *r, const u_char *session)
{
    ngx_http_sandbox_agent_t       agent;
    ngx_http_sandbox_main_conf_t  *smcf;

    smcf = ngx_http_get_module_main_conf(r, ngx_http_sandbox_module);

    return ngx_http_sandbox_agent_find(&smcf->zone, session, &agent, 0)
           == NGX_OK ? agent.used : -1;
}


static ngx_int_t
ngx_http_sandbox_dagger_notice(ngx_http_sandbox_ctx_t *ctx, ngx_str_t *code,
    ngx_str_t *detail)
{
    ngx_http_sandbox_session_t  *s;

    s = ctx->dagger;

    if (s == NULL || s->lost == NGX_HTTP_SANDBOX_KEPT
        || ctx->wire.operation != SANDBOX_OPERATION_COMMAND)
    {
        return NGX_DECLINED;
    }

    ngx_str_set(code, "sandbox_lost");

    if (s->lost == NGX_HTTP_SANDBOX_MOVED) {
        ngx_str_set(detail, "The sandbox is a new one, its engine is gone: "
                            "only attachments and skills are there again.");

    } else {
        ngx_str_set(detail, "The sandbox is a new one, its engine lost its "
                            "files: only attachments and skills are there "
                            "again.");
    }

    return NGX_OK;
}
