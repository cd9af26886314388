/*
 * Sessions on engines in the shared zone: a cache of where their agents are,
 * least recently used first out, and a counter of running commands for each
 * worker.  Whatever is in it can be lost, and work goes on.  Knows no request,
 * no engine but its number.
 */

#include "ngx_http_sandbox_dagger_session.h"


#define NGX_HTTP_SANDBOX_AGENTS_SHARE  8         /* of the zone, 1 / this */
#define NGX_HTTP_SANDBOX_AGENTS_TRIES  32        /* evictions for one */


typedef struct {
    ngx_rbtree_node_t              node;         /* key: head of session */
    ngx_queue_t                    queue;
    u_char                         session[SANDBOX_WIRE_SESSION_SIZE];
    ngx_http_sandbox_agent_t       agent;
} ngx_http_sandbox_agent_node_t;


typedef struct {
    ngx_pid_t                      pid;
    ngx_uint_t                     n;
} ngx_http_sandbox_runs_t;


/* in the zone; no function of a module may be pointed to from there */

typedef struct ngx_http_sandbox_agents_s {
    ngx_rbtree_t                   rbtree;
    ngx_rbtree_node_t              sentinel;
    ngx_queue_t                    queue;        /* last used first */
    ngx_uint_t                     n;
    ngx_uint_t                     max;
    ngx_uint_t                     running;      /* sum of all below */
    ngx_http_sandbox_runs_t        runs[NGX_MAX_PROCESSES];
} ngx_http_sandbox_agents_t;


static ngx_http_sandbox_agent_node_t *ngx_http_sandbox_agent_lookup(
    ngx_http_sandbox_agents_t *agents, const u_char *session);
static ngx_http_sandbox_agent_node_t *ngx_http_sandbox_agent_add(
    ngx_http_sandbox_zone_t *zone, const u_char *session);
static ngx_uint_t ngx_http_sandbox_agent_evict(ngx_http_sandbox_zone_t *zone);
static void ngx_http_sandbox_agent_delete(ngx_http_sandbox_zone_t *zone,
    ngx_http_sandbox_agent_node_t *an);
static ngx_rbtree_key_t ngx_http_sandbox_agent_key(const u_char *session);
static void ngx_http_sandbox_runs_bury(ngx_http_sandbox_agents_t *agents);


ngx_http_sandbox_agents_t *
ngx_http_sandbox_agents_create(ngx_slab_pool_t *shpool, size_t size)
{
    ngx_http_sandbox_agents_t  *agents;

    agents = ngx_slab_calloc(shpool, sizeof(ngx_http_sandbox_agents_t));
    if (agents == NULL) {
        return NULL;
    }

    ngx_rbtree_init(&agents->rbtree, &agents->sentinel,
                    ngx_rbtree_insert_value);
    ngx_queue_init(&agents->queue);

    agents->max = size / NGX_HTTP_SANDBOX_AGENTS_SHARE
                  / ngx_max(sizeof(ngx_http_sandbox_agent_node_t), 256);

    return agents;
}


ngx_int_t
ngx_http_sandbox_agent_find(ngx_http_sandbox_zone_t *zone,
    const u_char *session, ngx_http_sandbox_agent_t *agent, ngx_uint_t use)
{
    ngx_http_sandbox_agent_node_t  *an;

    if (zone->agents == NULL) {
        return NGX_DECLINED;
    }

    ngx_shmtx_lock(&zone->shpool->mutex);

    an = ngx_http_sandbox_agent_lookup(zone->agents, session);

    if (an) {
        *agent = an->agent;
    }

    if (an && use) {
        ngx_queue_remove(&an->queue);
        ngx_queue_insert_head(&zone->agents->queue, &an->queue);

        an->agent.used = ngx_time();
    }

    ngx_shmtx_unlock(&zone->shpool->mutex);

    return an ? NGX_OK : NGX_DECLINED;
}


void
ngx_http_sandbox_agent_place(ngx_http_sandbox_zone_t *zone,
    const u_char *session, const ngx_http_sandbox_agent_t *agent)
{
    ngx_http_sandbox_agent_node_t  *an;

    if (zone->agents == NULL) {
        return;
    }

    ngx_shmtx_lock(&zone->shpool->mutex);

    an = ngx_http_sandbox_agent_lookup(zone->agents, session);

    if (an == NULL) {
        an = ngx_http_sandbox_agent_add(zone, session);

        if (an) {
            an->agent.instance = agent->instance;
            an->agent.stored = agent->stored;
        }

    } else if (an->agent.engine != agent->engine) {
        an->agent.instance = 0;
        an->agent.stored = 0;
    }

    if (an) {
        an->agent.engine = agent->engine;
        an->agent.definition = agent->definition;
        an->agent.generation = agent->generation;
        an->agent.address = agent->address;
        an->agent.exec = agent->exec;
        an->agent.used = ngx_time();

        if (agent->lost) {
            an->agent.lost = agent->lost;
        }
    }

    ngx_shmtx_unlock(&zone->shpool->mutex);
}


void
ngx_http_sandbox_agent_change(ngx_http_sandbox_zone_t *zone,
    const u_char *session, ngx_http_sandbox_agent_change_e change,
    const ngx_http_sandbox_agent_t *agent)
{
    ngx_http_sandbox_agent_node_t  *an;

    if (zone->agents == NULL) {
        return;
    }

    ngx_shmtx_lock(&zone->shpool->mutex);

    an = ngx_http_sandbox_agent_lookup(zone->agents, session);

    if (an == NULL) {
        goto done;
    }

    switch (change) {

    case NGX_HTTP_SANDBOX_AGENT_SILENT:
        if (an->agent.address == agent->address) {
            an->agent.address = 0;
        }

        break;

    case NGX_HTTP_SANDBOX_AGENT_RESULT:
        if (an->agent.engine == agent->engine) {
            an->agent.instance = agent->instance;
            an->agent.lost = agent->lost;
            an->agent.stored = agent->stored;
        }

        break;

    case NGX_HTTP_SANDBOX_AGENT_FRESH:
        an->agent.instance = 0;
        break;

    case NGX_HTTP_SANDBOX_AGENT_DELETED:
        ngx_http_sandbox_agent_delete(zone, an);
        break;
    }

done:

    ngx_shmtx_unlock(&zone->shpool->mutex);
}


static ngx_http_sandbox_agent_node_t *
ngx_http_sandbox_agent_lookup(ngx_http_sandbox_agents_t *agents,
    const u_char *session)
{
    ngx_rbtree_key_t                key;
    ngx_rbtree_node_t              *node, *sentinel;
    ngx_http_sandbox_agent_node_t  *an;

    key = ngx_http_sandbox_agent_key(session);

    node = agents->rbtree.root;
    sentinel = agents->rbtree.sentinel;

    while (node != sentinel) {

        if (key != node->key) {
            node = (key < node->key) ? node->left : node->right;
            continue;
        }

        an = (ngx_http_sandbox_agent_node_t *) node;

        /* of two sessions with equal keys the one that came first is here */

        return ngx_memcmp(an->session, session, SANDBOX_WIRE_SESSION_SIZE)
               == 0 ? an : NULL;
    }

    return NULL;
}


/* with the mutex locked; NULL: no room, even without some others */

static ngx_http_sandbox_agent_node_t *
ngx_http_sandbox_agent_add(ngx_http_sandbox_zone_t *zone,
    const u_char *session)
{
    ngx_uint_t                      i;
    ngx_http_sandbox_agents_t      *agents;
    ngx_http_sandbox_agent_node_t  *an;

    agents = zone->agents;

    if (agents->n >= agents->max) {
        (void) ngx_http_sandbox_agent_evict(zone);
    }

    an = NULL;

    for (i = 0; i < NGX_HTTP_SANDBOX_AGENTS_TRIES; i++) {

        an = ngx_slab_calloc_locked(zone->shpool,
                                    sizeof(ngx_http_sandbox_agent_node_t));

        if (an || !ngx_http_sandbox_agent_evict(zone)) {
            break;
        }
    }

    if (an == NULL) {
        return NULL;
    }

    an->node.key = ngx_http_sandbox_agent_key(session);
    ngx_memcpy(an->session, session, SANDBOX_WIRE_SESSION_SIZE);

    ngx_rbtree_insert(&agents->rbtree, &an->node);
    ngx_queue_insert_head(&agents->queue, &an->queue);

    agents->n++;

    return an;
}


static ngx_uint_t
ngx_http_sandbox_agent_evict(ngx_http_sandbox_zone_t *zone)
{
    ngx_queue_t  *q;

    if (ngx_queue_empty(&zone->agents->queue)) {
        return 0;
    }

    q = ngx_queue_last(&zone->agents->queue);

    ngx_http_sandbox_agent_delete(zone,
                                  ngx_queue_data(q,
                                                 ngx_http_sandbox_agent_node_t,
                                                 queue));

    return 1;
}


static void
ngx_http_sandbox_agent_delete(ngx_http_sandbox_zone_t *zone,
    ngx_http_sandbox_agent_node_t *an)
{
    ngx_queue_remove(&an->queue);
    ngx_rbtree_delete(&zone->agents->rbtree, &an->node);
    ngx_slab_free_locked(zone->shpool, an);

    zone->agents->n--;
}


/* a session is a hash already */

static ngx_rbtree_key_t
ngx_http_sandbox_agent_key(const u_char *session)
{
    return (ngx_rbtree_key_t) sandbox_get64(session);
}


ngx_int_t
ngx_http_sandbox_run_take(ngx_http_sandbox_zone_t *zone)
{
    ngx_int_t                   rc;
    ngx_http_sandbox_runs_t    *runs;
    ngx_http_sandbox_agents_t  *agents;

    agents = zone->agents;

    if (agents == NULL) {
        return NGX_OK;
    }

    runs = &agents->runs[ngx_process_slot];
    rc = NGX_BUSY;

    ngx_shmtx_lock(&zone->shpool->mutex);

    if (agents->running >= zone->running) {
        ngx_http_sandbox_runs_bury(agents);
    }

    if (agents->running < zone->running) {
        agents->running++;
        runs->n++;
        runs->pid = ngx_pid;
        rc = NGX_OK;
    }

    ngx_shmtx_unlock(&zone->shpool->mutex);

    return rc;
}


void
ngx_http_sandbox_run_give(ngx_http_sandbox_zone_t *zone)
{
    ngx_http_sandbox_runs_t    *runs;
    ngx_http_sandbox_agents_t  *agents;

    agents = zone->agents;

    if (agents == NULL) {
        return;
    }

    runs = &agents->runs[ngx_process_slot];

    ngx_shmtx_lock(&zone->shpool->mutex);

    if (runs->pid == ngx_pid && runs->n) {
        runs->n--;
        agents->running--;
    }

    ngx_shmtx_unlock(&zone->shpool->mutex);
}


ngx_uint_t
ngx_http_sandbox_runs(ngx_http_sandbox_zone_t *zone)
{
    return zone->agents ? zone->agents->running : 0;
}


/* with the mutex locked; a worker that left without a word is not replaced */

static void
ngx_http_sandbox_runs_bury(ngx_http_sandbox_agents_t *agents)
{
    ngx_uint_t                i;
    ngx_http_sandbox_runs_t  *runs;

    for (i = 0; i < NGX_MAX_PROCESSES; i++) {
        runs = &agents->runs[i];

        if (runs->n && kill(runs->pid, 0) == -1 && ngx_errno == NGX_ESRCH) {
            agents->running -= runs->n;
            runs->n = 0;
        }
    }
}


void
ngx_http_sandbox_runs_init_process(ngx_http_sandbox_zone_t *zone)
{
    ngx_http_sandbox_runs_t    *runs;
    ngx_http_sandbox_agents_t  *agents;

    agents = zone->agents;

    if (agents == NULL) {
        return;
    }

    runs = &agents->runs[ngx_process_slot];

    ngx_shmtx_lock(&zone->shpool->mutex);

    agents->running -= runs->n;
    runs->n = 0;
    runs->pid = ngx_pid;

    ngx_shmtx_unlock(&zone->shpool->mutex);
}
