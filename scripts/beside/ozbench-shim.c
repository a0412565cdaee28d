/*
 * What scripts/benchmarks puts before libzpool (LD_PRELOAD) when ozbench runs, so that OpenZFS's engine gets the same
 * work and the same memory as ours:
 *
 * - BESIDE_DIR    files under this folder are opened with O_DIRECT, as ours are: otherwise the page cache of the system
 *                 is a second cache, as large as the machine's memory
 * - always        checks that no cached buffer was modified (zfs_flags) are switched off, and random numbers come without a
 *                 system call: both as in the kernel module. Its assertions cannot be switched off.
 * - ARC_MB        the ARC's lower bound is set below it; otherwise the engine ignores an ARC below 1/32 of the memory
 * - BESIDE_FILL   the volume is written whole, in order, before the first operation
 * - BESIDE_BYTES  operations go to so many bytes at the volume's beginning
 * - BESIDE_PICK   seq, random or zipf: where in them (ozbench itself knows only two)
 * - BESIDE_READ   they are read once, in order, before the first operation
 * - BESIDE_SYNC   each write is logged and committed to the intent log (ZIL)
 *
 * It prints a line of its own, {"iops_counted": N}: operations a second from the first one to the end of the last
 * group's sync, without what came before. It calls the engine's interfaces by OpenZFS's headers, and is only built
 * where they are.
 */
#include <sys/zfs_context.h>
#include <sys/dmu.h>
#include <sys/dmu_objset.h>
#include <sys/dmu_tx.h>
#include <sys/dnode.h>
#include <sys/zap.h>
#include <sys/zil.h>
#include <sys/zil_impl.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>

#define	REAL(name)	((__typeof__(&name))real(#name))

extern uint64_t zfs_arc_min;

static double began;
static uint64_t counted, set_bytes;
static zilog_t *zilog;
static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;
static __thread uint64_t state, place, chosen;
static __thread boolean_t has_chosen, has_logged;

static void *
real(const char *name)
{
	void *found = dlsym(RTLD_NEXT, name);
	if (found == NULL) {
		fprintf(stderr, "ozbench-shim: libzpool has no %s\n", name);
		exit(1);
	}
	return (found);
}

static double
seconds(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (t.tv_sec + t.tv_nsec * 1e-9);
}

__attribute__((constructor)) static void
begin(void)
{
	if (getenv("ARC_MB"))
		zfs_arc_min = 32 << 20;
	zfs_flags = 0;
}

int
open64(const char *path, int flags, ...)
{
	const char *dir = getenv("BESIDE_DIR");
	mode_t mode = 0;
	va_list rest;
	va_start(rest, flags);
	if (flags & O_CREAT)
		mode = va_arg(rest, int);
	va_end(rest);
	if (dir && strncmp(path, dir, strlen(dir)) == 0 && (flags & O_ACCMODE) == O_RDWR && !(flags & O_CREAT))
		flags |= O_DIRECT;
	return (((int (*)(const char *, int, ...))real("open64"))(path, flags, mode));
}

static uint64_t
next(void)
{
	if (state == 0)
		state = 88172645463325252ull ^ ((uint64_t)(uintptr_t)&state * 0x9e3779b97f4a7c15ull);
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (state);
}

int
random_get_pseudo_bytes(uint8_t *to, size_t len)
{
	for (size_t at = 0; at < len; at += 8) {
		uint64_t word = next();
		memcpy(to + at, &word, MIN(8, len - at));
	}
	return (0);
}

/* Where an operation goes that ozbench wants at `offset`. The same as `Place::next` of engine/benches/drive.rs. */
static uint64_t
pick(uint64_t offset, uint64_t size)
{
	static const char *how;
	if (how == NULL)
		how = getenv("BESIDE_PICK") ? getenv("BESIDE_PICK") : "";
	uint64_t blocks = set_bytes / size;
	if (*how == 0 || blocks == 0)
		return (offset);
	if (*how == 'r')
		return (next() % blocks * size);
	if (*how == 's') {
		place = place == 0 ? offset / size + 1 : place + 1;
		return ((place - 1) % blocks * size);
	}
	double part = (next() >> 11) * 0x1p-53;
	uint64_t rank = exp(part * log(blocks));
	return (rank * 0x9e3779b97f4a7c15ull % blocks * size);
}

static void
count(void)
{
	__atomic_add_fetch(&counted, 1, __ATOMIC_RELAXED);
}

static int
get_data(void *arg, uint64_t arg2, lr_write_t *lr, char *buf, struct lwb *lwb, zio_t *zio)
{
	(void) arg2, (void) lwb, (void) zio;
	return (REAL(dmu_read_by_dnode)(arg, lr->lr_offset, lr->lr_length, buf, DMU_READ_NO_PREFETCH));
}

static uint64_t
volume_bytes(objset_t *os)
{
	uint64_t bytes = 0;
	VERIFY0(zap_lookup(os, 2, "size", 8, 1, &bytes));
	return (bytes);
}

/* Writes all of the volume in order, by pieces of a block or 128 KiB. */
static void
fill(objset_t *os, dnode_t *dn)
{
	uint64_t size = MAX(dn->dn_datablksz, 128 << 10), bytes = volume_bytes(os);
	uint64_t pct = getenv("RANDPCT") ? atoi(getenv("RANDPCT")) : 100;
	char *buf = malloc(size);
	for (uint64_t i = 0; i < size / 8; i++)
		((uint64_t *)buf)[i] = (i % 256) * 8 < pct * 20 ? next() : 0;
	for (uint64_t at = 0; at < bytes; at += size) {
		for (uint64_t o = 0; o < size / 8; o += 64)
			((uint64_t *)buf)[o] = next();
		dmu_tx_t *tx = REAL(dmu_tx_create)(os);
		REAL(dmu_tx_hold_write_by_dnode)(tx, dn, at, size);
		if (REAL(dmu_tx_assign)(tx, DMU_TX_WAIT) != 0) {
			fprintf(stderr, "ozbench-shim: the volume could not be filled\n");
			exit(1);
		}
		REAL(dmu_write_by_dnode)(dn, at, size, buf, tx);
		REAL(dmu_tx_commit)(tx);
	}
	free(buf);
}

/* What comes before the first operation. */
static void
ready(dnode_t *dn)
{
	if (__atomic_load_n(&set_bytes, __ATOMIC_ACQUIRE) != 0)
		return;
	pthread_mutex_lock(&once);
	if (set_bytes == 0) {
		uint64_t bytes = volume_bytes(dn->dn_objset), piece = 128 << 10;
		if (getenv("BESIDE_BYTES"))
			bytes = MIN(bytes, strtoull(getenv("BESIDE_BYTES"), NULL, 10));
		if (getenv("BESIDE_SYNC")) {
			zilog = zil_open(dn->dn_objset, get_data, NULL);
			/* The import claimed what an earlier run left; there is nothing in it. */
			(void) zil_destroy(zilog, B_FALSE);
		}
		if (getenv("BESIDE_READ")) {
			char *buf = malloc(piece);
			for (uint64_t at = 0; at + piece <= bytes; at += piece)
				VERIFY0(REAL(dmu_read_by_dnode)(dn, at, piece, buf, DMU_READ_PREFETCH));
			free(buf);
		}
		began = seconds();
		__atomic_store_n(&set_bytes, bytes, __ATOMIC_RELEASE);
	}
	pthread_mutex_unlock(&once);
}

dmu_tx_t *
dmu_tx_create(objset_t *os)
{
	static boolean_t filled;
	if (getenv("BESIDE_FILL") && dmu_objset_type(os) == DMU_OST_ZVOL) {
		pthread_mutex_lock(&once);
		boolean_t mine = !filled;
		filled = B_TRUE;
		pthread_mutex_unlock(&once);
		dnode_t *dn;
		if (mine && dnode_hold(os, 1, FTAG, &dn) == 0) {
			fill(os, dn);
			dnode_rele(dn, FTAG);
		}
	}
	return (REAL(dmu_tx_create)(os));
}

void
dmu_tx_hold_write_by_dnode(dmu_tx_t *tx, dnode_t *dn, uint64_t off, int len)
{
	static __typeof__(&dmu_tx_hold_write_by_dnode) below;
	if (below == NULL)
		below = REAL(dmu_tx_hold_write_by_dnode);
	ready(dn);
	chosen = pick(off, len);
	has_chosen = B_TRUE;
	below(tx, dn, chosen, len);
}

int
dmu_write_by_dnode(dnode_t *dn, uint64_t offset, uint64_t size, const void *buf, dmu_tx_t *tx)
{
	static __typeof__(&dmu_write_by_dnode) below;
	if (below == NULL)
		below = REAL(dmu_write_by_dnode);
	if (!has_chosen)
		return (below(dn, offset, size, buf, tx));
	has_chosen = B_FALSE;
	int error = below(dn, chosen, size, buf, tx);
	if (zilog != NULL) {
		itx_t *itx = zil_itx_create(TX_WRITE, sizeof (lr_write_t));
		lr_write_t *lr = (lr_write_t *)&itx->itx_lr;
		itx->itx_wr_state = WR_NEED_COPY;
		lr->lr_foid = 1;
		lr->lr_offset = chosen;
		lr->lr_length = size;
		lr->lr_blkoff = 0;
		BP_ZERO(&lr->lr_blkptr);
		itx->itx_private = dn;
		itx->itx_sync = B_TRUE;
		zil_itx_assign(zilog, itx, tx);
		has_logged = B_TRUE;
	}
	count();
	return (error);
}

void
dmu_tx_commit(dmu_tx_t *tx)
{
	static __typeof__(&dmu_tx_commit) below;
	if (below == NULL)
		below = REAL(dmu_tx_commit);
	below(tx);
	if (has_logged) {
		has_logged = B_FALSE;
		zil_commit(zilog, 1);
	}
}

int
dmu_read_by_dnode(dnode_t *dn, uint64_t offset, uint64_t size, void *buf, uint32_t flags)
{
	static __typeof__(&dmu_read_by_dnode) below;
	if (below == NULL)
		below = REAL(dmu_read_by_dnode);
	ready(dn);
	int error = below(dn, pick(offset, size), size, buf, flags);
	count();
	return (error);
}

void
dmu_objset_disown(objset_t *os, boolean_t decrypt, const void *tag)
{
	double ended = seconds();
	if (began > 0)
		printf("{\"iops_counted\":%.0f}\n", counted / (ended - began));
	began = 0;
	if (zilog != NULL)
		zil_close(zilog);
	zilog = NULL;
	REAL(dmu_objset_disown)(os, decrypt, tag);
}
