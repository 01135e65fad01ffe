/* Names of the functions at code addresses of a process, from its mappings and the symbol tables of the mapped ELF
 * files. The process may have ended. */
#ifndef CT_BASE_PROCESS_SYMBOLS_H
#define CT_BASE_PROCESS_SYMBOLS_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct ct_symbols ct_symbols;

enum ct_status ct_symbols_create(ct_symbols **out) CT_MUST_CHECK;
void ct_symbols_destroy(ct_symbols *s); /* NULL is allowed */
/* Adds a line of /proc/PID/maps. Ignores lines that it does not understand. */
enum ct_status ct_symbols_add_map(ct_symbols *s, const char *line) CT_MUST_CHECK;
/* Writes "ct_work_wait+0x40 (ctrain)". If the file has no symbol there, or is no longer the file that was mapped
 * (another inode), writes its name and the offset: "libc.so.6+0x8a1b2". If the address is in no file, writes "0x7f12...
 * (generated code)". return_address: the address is that after a call, which may be the start of the next function. */
void ct_symbols_name(ct_symbols *s, uint64_t address, bool return_address, char *buf, size_t len);

#endif
