/*
 * The file of a history.  A log's records are chained by their checksums, so
 * that nothing of an older time can follow a record that was cut short.
 */

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "agent_store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>


#define AGENT_STORE_MAGIC      0x5342584849535431ULL     /* "SBXHIST1" */
#define AGENT_STORE_START      0x9e3779b97f4a7c15ULL
#define AGENT_STORE_PREFIX     16        /* length, type, checksum */
#define AGENT_STORE_BUFFER     ((size_t) 64 * 1024)
#define AGENT_STORE_RESERVE    ((size_t) 2 * 1024 * 1024)
#define AGENT_STORE_LEAST      ((size_t) 256 * 1024)
#define AGENT_STORE_SHARE      128       /* of the disk, for each log */
#define AGENT_STORE_DISK       ((uint64_t) 1024 * 1024 * 1024)   /* or so */
#define AGENT_STORE_OUTPUT_SHARE  8      /* of the disk, for all output */


/* of a log */

typedef struct {
    uint64_t  generation;
    uint64_t  end;                       /* of what it began with */
    uint64_t  chain;                     /* there */
    uint64_t  sum;
} agent_store_header_t;


static int agent_store_header(agent_store_t *store, unsigned region,
    const uint8_t *session, agent_store_header_t *header);
static void agent_store_header_write(uint8_t *p, const uint8_t *session,
    const agent_store_header_t *header);
static int agent_store_scan(agent_store_t *store, agent_store_log_t *log,
    const agent_store_header_t *header, size_t least,
    agent_store_handler_t handler, void *data);
static size_t agent_store_record(const agent_store_log_t *log,
    const uint8_t *p, size_t size);
static int agent_store_flush(agent_store_t *store);
static int agent_store_write(int fd, const uint8_t *p, size_t size,
    uint64_t at);
static size_t agent_store_get(int fd, uint8_t *p, size_t size, uint64_t at);
static uint64_t agent_store_place(unsigned place);
static uint64_t agent_store_mix(uint64_t h, uint64_t value);


int
agent_store_init(agent_store_t *store, int fd)
{
    size_t         reserve;
    uint64_t       disk;
    struct statfs  fs;

    if (agent_store_open(store, fd) == -1) {
        return -1;
    }

    reserve = AGENT_STORE_RESERVE;

    disk = AGENT_STORE_DISK;

    if (fstatfs(fd, &fs) == 0 && fs.f_blocks > 0 && fs.f_bsize > 0) {
        disk = fs.f_blocks * (uint64_t) fs.f_bsize;
    }

    while (reserve > AGENT_STORE_LEAST && reserve > disk / AGENT_STORE_SHARE) {
        reserve /= 2;
    }

    store->room = disk / AGENT_STORE_OUTPUT_SHARE;
    store->reserved = reserve;

    /* without room for that it is written where it can be */

    (void) !fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, reserve);
    (void) !fallocate(fd, FALLOC_FL_KEEP_SIZE, AGENT_STORE_LOG, reserve);
    (void) !fallocate(fd, FALLOC_FL_KEEP_SIZE, AGENT_STORE_IDS_AT,
                      AGENT_STORE_IDS * sizeof(uint64_t));

    return 0;
}


int
agent_store_open(agent_store_t *store, int fd)
{
    unsigned     i;
    struct stat  st;

    memset(store, 0, sizeof(agent_store_t));
    store->fd = -1;

    if (fstat(fd, &st) == -1 || !S_ISREG(st.st_mode)) {
        return -1;
    }

    store->fd = fd;
    store->reserved = AGENT_STORE_RESERVE;

    for (i = 0; i < AGENT_STORE_OUTPUTS; i++) {
        if ((uint64_t) st.st_size > agent_store_place(i)) {
            store->extent[i] = AGENT_STORE_OUTPUT;
        }
    }

    return 0;
}


int
agent_store_read(agent_store_t *store, const uint8_t *session,
    agent_store_handler_t handler, void *data)
{
    unsigned              i, first;
    agent_store_log_t     log;
    agent_store_header_t  headers[2];

    for (i = 0; i < 2; i++) {
        if (agent_store_header(store, i, session, &headers[i]) == -1) {
            headers[i].generation = 0;
        }
    }

    first = headers[1].generation > headers[0].generation;

    if (headers[first].generation) {

        /* the next rewrite must be newer than both, whichever is good */

        store->generation = headers[first].generation;
    }

    for (i = 0; i < 2; i++, first = !first) {
        if (headers[first].generation == 0) {
            continue;
        }

        log.region = first;

        if (agent_store_scan(store, &log, &headers[first],
                             headers[first].end, NULL, NULL) == -1
            || log.end < headers[first].end)
        {
            continue;
        }

        (void) agent_store_scan(store, &log, &headers[first], 0, handler,
                                data);
        store->log = log;
        memcpy(store->session, session, SANDBOX_WIRE_SESSION_SIZE);

        return 0;
    }

    return -1;
}


int
agent_store_append(agent_store_t *store, unsigned type, const uint8_t *head,
    size_t head_size, const uint8_t *data, size_t size,
    agent_store_place_t *place)
{
    size_t              length, whole;
    uint8_t             record[AGENT_STORE_PREFIX + AGENT_STORE_RECORD + 8];
    uint8_t            *p;
    uint64_t            sum;
    agent_store_log_t  *log;

    length = head_size + size;

    if (store->fd == -1 || head_size > AGENT_STORE_RECORD
        || size > AGENT_STORE_RECORD - head_size)
    {
        errno = EMSGSIZE;
        return -1;
    }

    whole = AGENT_STORE_PREFIX + (length + 7) / 8 * 8;
    log = store->buffer != NULL ? &store->next : &store->log;

    if (log->end == 0 || log->end + whole > AGENT_STORE_LOG) {
        errno = ENOSPC;
        return -1;
    }

    p = record + AGENT_STORE_PREFIX;
    memcpy(p, head, head_size);
    memcpy(p + head_size, data, size);
    memset(p + length, 0, whole - AGENT_STORE_PREFIX - length);

    sandbox_put32(record, (uint32_t) length);
    sandbox_put32(record + 4, type);
    sum = agent_store_sum(agent_store_sum(log->chain, record, 8), p, length);
    sandbox_put64(record + 8, sum);

    if (store->buffer == NULL) {
        if (agent_store_write(store->fd, record, whole,
                              log->region * AGENT_STORE_LOG + log->end) == -1)
        {
            return -1;
        }

    } else {
        if (store->buffered + whole > AGENT_STORE_BUFFER
            && agent_store_flush(store) == -1)
        {
            return -1;
        }

        memcpy(store->buffer + store->buffered, record, whole);
        store->buffered += whole;
    }

    if (place != NULL) {
        place->end = log->end;
        place->chain = log->chain;
    }

    log->end += whole;
    log->chain = sum;

    return 0;
}


size_t
agent_store_fetch(agent_store_t *store, const agent_store_place_t *place,
    uint8_t *p, size_t size)
{
    size_t             n;
    uint8_t            record[AGENT_STORE_PREFIX + AGENT_STORE_RECORD + 8];
    agent_store_log_t  log;

    if (store->fd == -1 || place->end == 0) {
        return 0;
    }

    log.chain = place->chain;

    n = AGENT_STORE_PREFIX + size + 8;
    n = agent_store_get(store->fd, record, n < sizeof(record)
                                           ? n : sizeof(record),
                        store->log.region * AGENT_STORE_LOG + place->end);

    if (agent_store_record(&log, record, n) == 0
        || sandbox_get32(record) > size)
    {
        return 0;
    }

    memcpy(p, record + AGENT_STORE_PREFIX, sandbox_get32(record));

    return sandbox_get32(record);
}


int
agent_store_rewrite(agent_store_t *store, const uint8_t *session)
{
    if (store->fd == -1) {
        errno = EBADF;
        return -1;
    }

    store->buffer = malloc(AGENT_STORE_BUFFER);
    if (store->buffer == NULL) {
        return -1;
    }

    store->buffered = 0;
    store->next.region = store->log.end ? !store->log.region : 0;
    store->next.end = AGENT_STORE_HEADER;
    store->next.chain = agent_store_mix(AGENT_STORE_START,
                                        store->generation + 1);
    memcpy(store->session, session, SANDBOX_WIRE_SESSION_SIZE);

    return 0;
}


int
agent_store_rewrite_end(agent_store_t *store)
{
    int                   rc;
    uint8_t               p[AGENT_STORE_HEADER];
    agent_store_header_t  header;

    header.generation = store->generation + 1;
    header.end = store->next.end;
    header.chain = store->next.chain;

    agent_store_header_write(p, store->session, &header);

    rc = agent_store_flush(store);

    if (rc == 0) {
        rc = agent_store_write(store->fd, p, sizeof(p),
                               store->next.region * AGENT_STORE_LOG);
    }

    if (rc == 0) {
        store->generation++;
        store->log = store->next;
    }

    agent_store_rewrite_cancel(store);

    return rc;
}


void
agent_store_rewrite_cancel(agent_store_t *store)
{
    free(store->buffer);
    store->buffer = NULL;
}


int
agent_store_ids_write(agent_store_t *store, uint64_t n, const uint64_t *ids,
    size_t count)
{
    size_t   i, part;
    uint8_t  p[512 * 8];

    if (store->fd == -1) {
        errno = EBADF;
        return -1;
    }

    for ( /* void */ ; count; n += part, ids += part, count -= part) {
        part = count < 512 ? count : 512;

        for (i = 0; i < part; i++) {
            sandbox_put64(p + 8 * i, ids[i]);
        }

        if (agent_store_write(store->fd, p, 8 * part, AGENT_STORE_IDS_AT
                              + n % AGENT_STORE_IDS * 8) == -1)
        {
            return -1;
        }
    }

    return 0;
}


void
agent_store_ids_read(agent_store_t *store, uint64_t *ids, size_t count)
{
    size_t  i, n;

    n = agent_store_get(store->fd, (uint8_t *) ids, count * sizeof(uint64_t),
                        AGENT_STORE_IDS_AT) / sizeof(uint64_t);

    for (i = 0; i < count; i++) {
        ids[i] = i < n ? sandbox_get64((uint8_t *) &ids[i]) : 0;
    }
}


int
agent_store_output_write(agent_store_t *store, unsigned place, uint64_t at,
    const uint8_t *data, size_t size)
{
    if (store->fd == -1 || size > AGENT_STORE_OUTPUT
        || at > AGENT_STORE_OUTPUT - size)
    {
        errno = EFBIG;
        return -1;
    }

    if (store->extent[place] < at + size) {
        store->extent[place] = at + size;
    }

    return agent_store_write(store->fd, data, size,
                             agent_store_place(place) + at);
}


int
agent_store_output_commit(agent_store_t *store, unsigned place,
    const agent_store_output_t *output)
{
    uint8_t  p[AGENT_STORE_HEADER];

    agent_store_output_header(p, output);

    return agent_store_write(store->fd, p, sizeof(p),
                             agent_store_place(place));
}


void
agent_store_output_header(uint8_t *p, const agent_store_output_t *output)
{
    memset(p, 0, AGENT_STORE_HEADER);
    sandbox_put64(p, AGENT_STORE_MAGIC);
    sandbox_put64(p + 8, output->ordinal);
    sandbox_put64(p + 16, output->head);
    sandbox_put64(p + 24, output->answer);
    sandbox_put64(p + 32, output->events);
    sandbox_put64(p + 40, output->answer_sum);
    sandbox_put64(p + 48, output->events_sum);
    sandbox_put64(p + 56, agent_store_sum(AGENT_STORE_START, p, 56));
}


int
agent_store_output_read(agent_store_t *store, unsigned place,
    agent_store_output_t *output)
{
    uint8_t   p[AGENT_STORE_HEADER];
    uint64_t  most;

    if (store->fd == -1 || place >= AGENT_STORE_OUTPUTS
        || agent_store_get(store->fd, p, sizeof(p), agent_store_place(place))
           != sizeof(p)
        || sandbox_get64(p) != AGENT_STORE_MAGIC
        || sandbox_get64(p + 56) != agent_store_sum(AGENT_STORE_START, p, 56))
    {
        return -1;
    }

    output->ordinal = sandbox_get64(p + 8);
    output->head = sandbox_get64(p + 16);
    output->answer = sandbox_get64(p + 24);
    output->events = sandbox_get64(p + 32);
    output->answer_sum = sandbox_get64(p + 40);
    output->events_sum = sandbox_get64(p + 48);

    most = AGENT_STORE_OUTPUT - AGENT_STORE_HEADER;

    return output->answer <= most && output->events <= most - output->answer
           && output->head <= output->answer ? 0 : -1;
}


int
agent_store_output_get(agent_store_t *store, unsigned place, uint64_t at,
    uint8_t *data, size_t size)
{
    return agent_store_get(store->fd, data, size, agent_store_place(place)
                           + AGENT_STORE_HEADER + at) == size ? 0 : -1;
}


void
agent_store_output_trim(agent_store_t *store, unsigned place, uint64_t size)
{
    uint64_t  start;

    start = (AGENT_STORE_HEADER + size + AGENT_STORE_BLOCK - 1)
            / AGENT_STORE_BLOCK * AGENT_STORE_BLOCK;

    if (store->fd != -1 && start < store->extent[place]) {
        store->extent[place] = start;
        (void) !fallocate(store->fd, FALLOC_FL_PUNCH_HOLE|FALLOC_FL_KEEP_SIZE,
                          agent_store_place(place) + start,
                          AGENT_STORE_OUTPUT - start);
    }
}


uint64_t
agent_store_output_used(const agent_store_t *store)
{
    unsigned  i;
    uint64_t  used;

    used = 0;

    for (i = 0; i < AGENT_STORE_OUTPUTS; i++) {
        used += store->extent[i];
    }

    return used;
}


uint64_t
agent_store_sum(uint64_t seed, const uint8_t *p, size_t size)
{
    uint64_t  h, word;

    h = agent_store_mix(seed, size);

    for ( /* void */ ; size >= 8; p += 8, size -= 8) {
        memcpy(&word, p, 8);
        h = agent_store_mix(h, word);
    }

    if (size) {
        word = 0;
        memcpy(&word, p, size);
        h = agent_store_mix(h, word);
    }

    return h;
}


/* Reads a log's header; -1: it has none of this session. */

static int
agent_store_header(agent_store_t *store, unsigned region,
    const uint8_t *session, agent_store_header_t *header)
{
    uint8_t  p[AGENT_STORE_HEADER];

    if (store->fd == -1
        || agent_store_get(store->fd, p, sizeof(p), region * AGENT_STORE_LOG)
           != sizeof(p)
        || sandbox_get64(p) != AGENT_STORE_MAGIC
        || memcmp(p + 8, session, SANDBOX_WIRE_SESSION_SIZE) != 0
        || sandbox_get64(p + 64) != agent_store_sum(AGENT_STORE_START, p, 64))
    {
        return -1;
    }

    header->generation = sandbox_get64(p + 40);
    header->end = sandbox_get64(p + 48);
    header->chain = sandbox_get64(p + 56);

    return header->generation && header->generation < UINT64_MAX
           && header->end >= AGENT_STORE_HEADER
           && header->end <= AGENT_STORE_LOG ? 0 : -1;
}


static void
agent_store_header_write(uint8_t *p, const uint8_t *session,
    const agent_store_header_t *header)
{
    memset(p, 0, AGENT_STORE_HEADER);
    sandbox_put64(p, AGENT_STORE_MAGIC);
    memcpy(p + 8, session, SANDBOX_WIRE_SESSION_SIZE);
    sandbox_put64(p + 40, header->generation);
    sandbox_put64(p + 48, header->end);
    sandbox_put64(p + 56, header->chain);
    sandbox_put64(p + 64, agent_store_sum(AGENT_STORE_START, p, 64));
}


/*
 * Goes over the records from the first on, up to the first that is none.  At
 * `least` (0: nowhere) the chain has to be that of the header, or -1.
 */

static int
agent_store_scan(agent_store_t *store, agent_store_log_t *log,
    const agent_store_header_t *header, size_t least,
    agent_store_handler_t handler, void *data)
{
    int                   rc;
    size_t                n, at, have, want;
    uint8_t              *buffer;
    agent_store_place_t   place;

    log->end = AGENT_STORE_HEADER;
    log->chain = agent_store_mix(AGENT_STORE_START, header->generation);

    buffer = malloc(AGENT_STORE_BUFFER);
    if (buffer == NULL) {
        return -1;
    }

    rc = 0;
    at = 0;
    have = 0;

    for ( ;; ) {
        if (log->end == least && log->chain != header->chain) {
            rc = -1;
            break;
        }

        if (least && log->end >= least) {
            break;
        }

        n = agent_store_record(log, buffer + at, have - at);

        if (n == 0) {

            /* more of the file, once, then it is the end */

            want = AGENT_STORE_LOG - log->end;

            if (want > AGENT_STORE_BUFFER) {
                want = AGENT_STORE_BUFFER;
            }

            have = agent_store_get(store->fd, buffer, want, log->region
                                   * AGENT_STORE_LOG + log->end);
            at = 0;
            n = agent_store_record(log, buffer, have);

            if (n == 0) {
                break;
            }
        }

        place.end = log->end;
        place.chain = log->chain;

        if (handler != NULL
            && handler(data, sandbox_get32(buffer + at + 4),
                       buffer + at + AGENT_STORE_PREFIX,
                       sandbox_get32(buffer + at), &place) == -1)
        {
            break;
        }

        log->chain = sandbox_get64(buffer + at + 8);
        log->end += n;
        at += n;
    }

    free(buffer);

    return rc;
}


/* Bytes of the whole record at p, 0: there is none, or not all of it. */

static size_t
agent_store_record(const agent_store_log_t *log, const uint8_t *p,
    size_t size)
{
    size_t  length, whole;

    if (size < AGENT_STORE_PREFIX) {
        return 0;
    }

    length = sandbox_get32(p);

    if (length > AGENT_STORE_RECORD) {
        return 0;
    }

    whole = AGENT_STORE_PREFIX + (length + 7) / 8 * 8;

    if (whole > size
        || sandbox_get64(p + 8)
           != agent_store_sum(agent_store_sum(log->chain, p, 8),
                              p + AGENT_STORE_PREFIX, length))
    {
        return 0;
    }

    return whole;
}


static int
agent_store_flush(agent_store_t *store)
{
    if (agent_store_write(store->fd, store->buffer, store->buffered,
                          store->next.region * AGENT_STORE_LOG
                          + store->next.end - store->buffered) == -1)
    {
        return -1;
    }

    store->buffered = 0;

    return 0;
}


static int
agent_store_write(int fd, const uint8_t *p, size_t size, uint64_t at)
{
    ssize_t  n;

    while (size) {
        n = pwrite(fd, p, size, at);

        if (n == -1 && errno == EINTR) {
            continue;
        }

        if (n <= 0) {
            errno = n == 0 ? EIO : errno;
            return -1;
        }

        p += n;
        at += n;
        size -= n;
    }

    return 0;
}


/* As many bytes as there are. */

static size_t
agent_store_get(int fd, uint8_t *p, size_t size, uint64_t at)
{
    size_t   have;
    ssize_t  n;

    for (have = 0; have < size; have += n) {
        n = pread(fd, p + have, size - have, at + have);

        if (n == -1 && errno == EINTR) {
            n = 0;
            continue;
        }

        if (n <= 0) {
            break;
        }
    }

    return have;
}


static uint64_t
agent_store_place(unsigned place)
{
    return AGENT_STORE_OUTPUT_AT + place * AGENT_STORE_OUTPUT;
}


static uint64_t
agent_store_mix(uint64_t h, uint64_t value)
{
    h = (h ^ value) * 0xff51afd7ed558ccdULL;

    return h ^ (h >> 32);
}
