/*
 * A skill into a conversation, in a thread: from the library, or what was
 * uploaded; what is wrong with it, in words; and where the library is.
 * Knows nothing of routes and JSON.
 */

#include "ngx_http_sandbox_skills.h"


static void ngx_http_sandbox_skill_cleanup(void *data);
static void ngx_http_sandbox_skill_load_thread(
    ngx_http_sandbox_store_op_t *op);
static ngx_int_t ngx_http_sandbox_skill_reader(
    ngx_http_sandbox_store_op_t *op);
static void ngx_http_sandbox_skill_commit_thread(
    ngx_http_sandbox_store_op_t *op);
static void ngx_http_sandbox_skill_done(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_store_op_t *op);
static void ngx_http_sandbox_skill_committed(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_skill_t *skill);
static ngx_uint_t ngx_http_sandbox_skill_of_library(
    ngx_http_sandbox_skill_t *skill);
static void ngx_http_sandbox_skills_check(ngx_cycle_t *cycle,
    ngx_core_conf_t *ccf, ngx_str_t *name);
static void ngx_http_sandbox_skill_log(ngx_http_request_t *r,
    ngx_http_sandbox_skill_t *skill);


ngx_http_sandbox_skill_t *
ngx_http_sandbox_skill_create(ngx_http_request_t *r,
    ngx_http_sandbox_store_op_t *op)
{
    ngx_pool_cleanup_t           *cln;
    ngx_http_sandbox_skill_t     *skill;
    ngx_http_sandbox_loc_conf_t  *slcf;

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sandbox_module);

    cln = ngx_pool_cleanup_add(r->pool, sizeof(ngx_http_sandbox_skill_t));
    if (cln == NULL) {
        return NULL;
    }

    skill = cln->data;
    ngx_memzero(skill, sizeof(ngx_http_sandbox_skill_t));
    cln->handler = ngx_http_sandbox_skill_cleanup;

    skill->op = op;
    skill->library = slcf->skills;

    op->data = skill;
    op->writer.max = SANDBOX_SKILL_MAX_BYTES;

    return skill;
}


static void
ngx_http_sandbox_skill_cleanup(void *data)
{
    ngx_http_sandbox_skill_t *skill = data;

    free(skill->reader);
    sandbox_store_skills_free(&skill->list);
}


ngx_http_sandbox_skill_t *
ngx_http_sandbox_skill_load(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_str_t *name,
    sandbox_store_skill_mode_e mode, ngx_http_sandbox_skill_pt handler,
    void *data)
{
    const char                   *wrong;
    ngx_http_sandbox_skill_t     *skill;
    ngx_http_sandbox_store_op_t  *op;

    ngx_memzero(&ctx->problem, sizeof(ngx_http_sandbox_problem_t));

    if (ngx_http_sandbox_store_here(r, ctx) != NGX_OK) {
        return NULL;
    }

    wrong = sandbox_skill_name_wrong((char *) name->data, name->len);

    if (wrong) {
        ngx_http_sandbox_refuse(ctx, NGX_HTTP_BAD_REQUEST, "bad_name", wrong);
        return NULL;
    }

    op = ngx_http_sandbox_store_op(r, ctx, SANDBOX_STORE_SKILLS,
                                   ngx_http_sandbox_skill_done);
    if (op == NULL) {
        return NULL;
    }

    skill = ngx_http_sandbox_skill_create(r, op);
    if (skill == NULL) {
        return NULL;
    }

    skill->mode = mode;
    skill->handler = handler;
    skill->data = data;

    ngx_memcpy(op->entry.name, name->data, name->len);
    op->entry.name_len = (unsigned) name->len;

    if (ngx_http_sandbox_store_run(op, ngx_http_sandbox_skill_load_thread)
        != NGX_OK)
    {
        return NULL;
    }

    return skill;
}


static void
ngx_http_sandbox_skill_load_thread(ngx_http_sandbox_store_op_t *op)
{
    ngx_http_sandbox_skill_t *skill = op->data;

    unsigned  created;

    if (ngx_http_sandbox_skill_reader(op) != NGX_OK) {
        return;
    }

    if (sandbox_store_skill_load(&op->place, &op->quota,
                                 skill->library.len
                                 ? (char *) skill->library.data : "",
                                 skill->mode, &op->writer, skill->reader,
                                 &op->entry, &created, &op->fault)
        == SANDBOX_STORE_OK)
    {
        op->created = created;
    }
}


static ngx_int_t
ngx_http_sandbox_skill_reader(ngx_http_sandbox_store_op_t *op)
{
    ngx_http_sandbox_skill_t *skill = op->data;

    skill->reader = malloc(sizeof(sandbox_skill_reader_t));

    if (skill->reader == NULL) {
        op->fault.status = SANDBOX_STORE_FAILED;
        op->fault.error = ENOMEM;
        op->fault.call = "malloc";
        return NGX_ERROR;
    }

    return NGX_OK;
}


ngx_int_t
ngx_http_sandbox_skill_commit(ngx_http_sandbox_store_op_t *op,
    ngx_str_t *name, u_char *p, size_t n)
{
    ngx_http_sandbox_ctx_t    *ctx;
    ngx_http_sandbox_skill_t  *skill;

    skill = ngx_http_sandbox_skill_create(op->request, op);

    if (skill == NULL) {
        ctx = ngx_http_get_module_ctx(op->request, ngx_http_sandbox_module);
        ngx_http_sandbox_refuse(ctx, NGX_HTTP_INTERNAL_SERVER_ERROR,
                                "internal", "There is no memory.");
        return NGX_ERROR;
    }

    skill->handler = ngx_http_sandbox_skill_committed;

    op->handler = ngx_http_sandbox_skill_done;
    op->bytes = p;
    op->size = n;

    ngx_memcpy(op->entry.name, name->data, name->len);
    op->entry.name_len = (unsigned) name->len;

    return ngx_http_sandbox_store_run(op,
                                      ngx_http_sandbox_skill_commit_thread);
}


static void
ngx_http_sandbox_skill_commit_thread(ngx_http_sandbox_store_op_t *op)
{
    ngx_http_sandbox_skill_t *skill = op->data;

    unsigned  created;

    if (ngx_http_sandbox_skill_reader(op) != NGX_OK) {
        return;
    }

    if (op->size
        && sandbox_store_write(&op->writer, op->place.root, op->bytes,
                               op->size, &op->fault)
           != SANDBOX_STORE_OK)
    {
        sandbox_store_writer_abort(&op->writer);
        return;
    }

    if (sandbox_store_skill_commit(&op->writer, &op->place, &op->quota,
                                   &op->condition, skill->reader, &op->entry,
                                   &created, &op->fault)
        == SANDBOX_STORE_OK)
    {
        op->created = created;
    }
}


static void
ngx_http_sandbox_skill_done(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_store_op_t *op)
{
    ngx_http_sandbox_skill_t *skill = op->data;

    if (op->fault.status != SANDBOX_STORE_OK) {
        ngx_http_sandbox_skill_problem(r, ctx, skill);

    } else {
        skill->skill = &skill->reader->skill;
        skill->text.data = skill->reader->text;
        skill->text.len = skill->reader->text_len;
        skill->text_size = skill->reader->text_size;
    }

    skill->handler(r, ctx, skill);
}


static void
ngx_http_sandbox_skill_committed(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_skill_t *skill)
{
    if (skill->op->fault.status != SANDBOX_STORE_OK) {
        r->read_event_handler = ngx_http_block_reading;
        ngx_http_finalize_request(r, ngx_http_sandbox_send_problem(r, ctx));
        return;
    }

    ngx_http_finalize_request(r, ngx_http_sandbox_skills_answer(r, ctx,
                                                                skill));
}


void
ngx_http_sandbox_skill_problem(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_skill_t *skill)
{
    sandbox_store_fault_t  *fault;

    fault = &skill->op->fault;

    switch (fault->status) {

    case SANDBOX_STORE_MISSING:
        ngx_http_sandbox_refuse(ctx, NGX_HTTP_NOT_FOUND, "skill_not_found",
                                "There is no skill of that name.");
        return;

    case SANDBOX_STORE_EXISTS:
        ngx_http_sandbox_refuse(ctx, NGX_HTTP_CONFLICT, "skill_exists",
                                "A skill of that name was uploaded to the "
                                "conversation; delete it first, if it is to "
                                "be the library's.");
        return;

    case SANDBOX_STORE_TOO_LARGE:
        ngx_http_sandbox_refuse(ctx, NGX_HTTP_REQUEST_ENTITY_TOO_LARGE,
                                "file_too_large",
                                "The tar of a skill may have at most 64 "
                                "MiB.");
        return;

    case SANDBOX_STORE_TOO_MANY:

        if (fault->limit == SANDBOX_STORE_MAX_SKILLS) {
            ngx_http_sandbox_refuse(ctx, NGX_HTTP_INSUFFICIENT_STORAGE,
                                    "disk_full",
                                    "A conversation may have at most 16 "
                                    "skills; delete some.");
            return;
        }

        break;

    case SANDBOX_STORE_REFUSED:

        if (ngx_http_sandbox_skill_of_library(skill)) {
            ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                          "sandbox: \"%s\" of \"sandbox_skills\" is no skill: "
                          "%s \"sandboxctl skills pack\" makes one",
                          fault->path, skill->reader->error);
        }

        if (skill->reader->compressed) {
            ngx_http_sandbox_refuse(ctx, NGX_HTTP_UNSUPPORTED_MEDIA_TYPE,
                                    "unsupported_media_type",
                                    skill->reader->error);
            return;
        }

        ngx_http_sandbox_refuse(ctx, 422,
                                "skill_refused", skill->reader->error);
        return;

    case SANDBOX_STORE_FAILED:

        if (ngx_http_sandbox_skill_of_library(skill)) {
            ngx_http_sandbox_skill_log(r, skill);
            ngx_http_sandbox_refuse(ctx, NGX_HTTP_INTERNAL_SERVER_ERROR,
                                    "internal",
                                    "The server met an error, its log says "
                                    "which.");
            return;
        }

        break;
    }

    ngx_http_sandbox_store_problem(r, ctx, skill->op);
}


static ngx_uint_t
ngx_http_sandbox_skill_of_library(ngx_http_sandbox_skill_t *skill)
{
    char  *path;

    path = skill->op->fault.path;

    return skill->library.len
           && ngx_strncmp(path, skill->library.data, skill->library.len) == 0
           && (path[skill->library.len] == '/'
               || path[skill->library.len] == '\0');
}


static void
ngx_http_sandbox_skill_log(ngx_http_request_t *r,
    ngx_http_sandbox_skill_t *skill)
{
    const char             *advice;
    sandbox_store_fault_t  *fault;

    fault = &skill->op->fault;

    switch (fault->error) {

    case NGX_EACCES:
    case NGX_EPERM:
        advice = "the user of nginx's workers must be able to read it and to "
                 "enter the folders above it";
        break;

    case NGX_ELOOP:
    case EINVAL:
        advice = "it must be a file itself, neither a link nor anything else";
        break;

    case NGX_ENOENT:
    case NGX_ENOTDIR:
        advice = "the folder was there when the configuration was read";
        break;

    case NGX_ENFILE:
    case EMFILE:
        advice = "raise \"worker_rlimit_nofile\"";
        break;

    default:
        advice = "look after its disk";
    }

    ngx_log_error(NGX_LOG_ERR, r->connection->log, fault->error,
                  "sandbox: %s of \"%s\" in \"sandbox_skills\" failed: %s",
                  fault->call, fault->path, advice);
}


char *
ngx_http_sandbox_conf_skills(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_sandbox_loc_conf_t *slcf = conf;

    ngx_str_t                     *value, *name, *library;
    ngx_file_info_t                fi;
    ngx_http_sandbox_main_conf_t  *smcf;

    if (slcf->skills.data != NULL) {
        return "is duplicate";
    }

    value = cf->args->elts;
    name = &value[1];

    if (ngx_strcmp(name->data, "off") == 0) {
        ngx_str_set(&slcf->skills, "");
        return NGX_CONF_OK;
    }

    if (name->len > SANDBOX_STORE_MAX_ROOT) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "the path in \"sandbox_skills\" directive has %uz "
                           "bytes, it may have %d", name->len,
                           SANDBOX_STORE_MAX_ROOT);
        return NGX_CONF_ERROR;
    }

    if (name->len < 2 || name->data[0] != '/') {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid path \"%V\" in \"sandbox_skills\" "
                           "directive, it must be an absolute one, such as "
                           "\"/usr/local/share/sandbox/skills\", or \"off\"",
                           name);
        return NGX_CONF_ERROR;
    }

    while (name->len > 1 && name->data[name->len - 1] == '/') {
        name->data[--name->len] = '\0';
    }

    if (ngx_file_info(name->data, &fi) == NGX_FILE_ERROR) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, ngx_errno,
                           "there is no \"%V\" of \"sandbox_skills\"; make "
                           "the folder, and put NAME.tar there, which "
                           "\"sandboxctl skills pack\" makes", name);
        return NGX_CONF_ERROR;
    }

    if (!ngx_is_dir(&fi)) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%V\" in \"sandbox_skills\" directive is not a "
                           "folder", name);
        return NGX_CONF_ERROR;
    }

    smcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_sandbox_module);

    library = ngx_array_push(&smcf->libraries);
    if (library == NULL) {
        return NGX_CONF_ERROR;
    }

    *library = *name;
    slcf->skills = *name;

    return NGX_CONF_OK;
}


void
ngx_http_sandbox_skills_init_module(ngx_cycle_t *cycle,
    ngx_http_sandbox_main_conf_t *smcf)
{
    ngx_str_t        *library;
    ngx_uint_t        i;
    ngx_core_conf_t  *ccf;

    ccf = (ngx_core_conf_t *) ngx_get_conf(cycle->conf_ctx, ngx_core_module);
    library = smcf->libraries.elts;

    for (i = 0; i < smcf->libraries.nelts; i++) {
        ngx_http_sandbox_skills_check(cycle, ccf, &library[i]);
    }
}


/* as far as its mode tells; a worker's other groups are not looked at */

static void
ngx_http_sandbox_skills_check(ngx_cycle_t *cycle, ngx_core_conf_t *ccf,
    ngx_str_t *name)
{
    ngx_uint_t       mode;
    ngx_file_info_t  fi;

    if (ngx_file_info(name->data, &fi) == NGX_FILE_ERROR) {
        return;
    }

    if (geteuid() != 0 || ccf->user == (ngx_uid_t) NGX_CONF_UNSET_UINT) {

        if (access((char *) name->data, R_OK|X_OK) == 0) {
            return;
        }

    } else {

        mode = fi.st_mode & S_IRWXO;

        if (fi.st_uid == ccf->user) {
            mode |= (fi.st_mode & S_IRWXU) >> 6;
        }

        if (fi.st_gid == ccf->group) {
            mode |= (fi.st_mode & S_IRWXG) >> 3;
        }

        if (mode & S_IWOTH) {
            ngx_log_error(NGX_LOG_WARN, cycle->log, 0,
                          "nginx's workers can write into \"sandbox_skills\" "
                          "\"%V\", and need not: \"chown root %V\", \"chmod "
                          "0755 %V\"", name, name, name);
        }

        /* of a group that is not theirs they may be, too */

        mode |= (fi.st_mode & S_IRWXG) >> 3;

        if ((mode & (S_IROTH|S_IXOTH)) == (S_IROTH|S_IXOTH)) {
            return;
        }
    }

    ngx_log_error(NGX_LOG_WARN, cycle->log, 0,
                  "nginx's workers can't read \"sandbox_skills\" \"%V\": "
                  "\"chmod 0755 %V\"", name, name);
}
