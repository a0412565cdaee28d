/* Preloaded into zdb: the last thing that zdb does before it ends, when all is said and its exit code is decided, is to take its engine apart.
 * That waits for six seconds until the cache lets go of what was read ahead of need. The end of the process frees the same. */
void kernel_fini(void) {}
