/* An address is first mapped to a file and an offset (/proc/PID/maps), then through the program headers to the address
 * that the file's symbols use, and then to the function whose range contains it. The table of all functions is searched
 * before that of exported ones, which is all that a stripped file has. Files are opened when an address needs them, and
 * only if they still have the inode that was mapped. Their contents are not trusted: parts are copied with limits on
 * their sizes, names must end within their table, and a file that cannot be used yields a result without a name. The
 * search is linear, since reports contain few addresses. */
#include "base/process/symbols.h"

#include <elf.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"

#define MAX_PART_BYTES (256 << 20)

/* A symbol table of a file. */
struct table {
	Elf64_Sym *symbols;
	char *names; /* ends with a NUL */
	size_t n, names_bytes;
};

/* A mapping of a file. Mappings of the same file are opened separately, because there is usually one that is
 * executable. */
struct mapping {
	uint64_t start, end, offset, inode;
	char path[512];
	bool opened;
	/* Copies of parts of the file, which may change at any time. Empty: not opened, or not usable. */
	Elf64_Phdr *segments;
	int n_segments;
	struct table tables[2]; /* of all functions, and of those that other files use */
};

struct ct_symbols {
	struct mapping *maps;
	size_t n, cap;
};

enum ct_status ct_symbols_create(ct_symbols **out)
{
	CT_TRY_ALLOC(*out = CT_NEW(ct_symbols));
	return CT_OK;
}

static void release(struct mapping *m)
{
	for (size_t i = 0; i < CT_ARRAY_LEN(m->tables); i++) {
		ct_free(m->tables[i].symbols);
		ct_free(m->tables[i].names);
	}
	ct_free(m->segments);
}

void ct_symbols_destroy(ct_symbols *s)
{
	for (size_t i = 0; s && i < s->n; i++)
		release(&s->maps[i]);
	if (s)
		ct_free(s->maps);
	ct_free(s);
}

enum ct_status ct_symbols_add_map(ct_symbols *s, const char *line)
{
	struct mapping m = {0};

	if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %*s %" SCNx64 " %*s %" SCNu64 " %511[^\n]", &m.start, &m.end,
		   &m.offset, &m.inode, m.path) != 5 ||
	    m.path[0] != '/')
		return CT_OK;
	CT_TRY_GROW(s->maps, s->n, s->cap);
	s->maps[s->n++] = m;
	return CT_OK;
}

/* ---- ELF */

/* Returns a copy of a part of the file, which the caller owns, or NULL. The file may be damaged. */
static void *read_part(int fd, const char *path, uint64_t offset, uint64_t bytes)
{
	void *p = bytes > 0 && bytes <= MAX_PART_BYTES ? ct_realloc(NULL, (size_t)bytes, 1) : NULL;

	if (p && ct_fd_read_at(fd, p, (size_t)bytes, offset, path) == CT_OK)
		return p;
	ct_error_clear();
	ct_free(p);
	return NULL;
}

static void read_table(const struct mapping *m, int fd, const Elf64_Shdr *symbols, const Elf64_Shdr *names,
		       struct table *out)
{
	struct table t = {.n = symbols->sh_size / sizeof(*t.symbols), .names_bytes = names->sh_size};

	t.symbols = read_part(fd, m->path, symbols->sh_offset, symbols->sh_size);
	t.names = read_part(fd, m->path, names->sh_offset, names->sh_size);
	if (t.symbols && t.names && t.names[t.names_bytes - 1] == '\0') {
		*out = t;
		return;
	}
	ct_free(t.symbols);
	ct_free(t.names);
}

static void read_tables(struct mapping *m, int fd, const Elf64_Ehdr *h)
{
	static const unsigned kinds[CT_ARRAY_LEN(m->tables)] = {SHT_SYMTAB, SHT_DYNSYM};
	Elf64_Shdr *s = read_part(fd, m->path, h->e_shoff, (uint64_t)h->e_shnum * sizeof(*s));

	for (int i = 0; s && i < h->e_shnum; i++) {
		for (size_t k = 0; k < CT_ARRAY_LEN(kinds); k++) {
			if (s[i].sh_type == kinds[k] && s[i].sh_link < h->e_shnum && !m->tables[k].symbols)
				read_table(m, fd, &s[i], &s[s[i].sh_link], &m->tables[k]);
		}
	}
	ct_free(s);
}

static void read_elf(struct mapping *m, int fd)
{
	Elf64_Ehdr *h = read_part(fd, m->path, 0, sizeof(*h));

	if (h && memcmp(h->e_ident, ELFMAG, SELFMAG) == 0 && h->e_ident[EI_CLASS] == ELFCLASS64 &&
	    h->e_phentsize == sizeof(Elf64_Phdr) && h->e_shentsize == sizeof(Elf64_Shdr)) {
		m->segments = read_part(fd, m->path, h->e_phoff, (uint64_t)h->e_phnum * sizeof(*m->segments));
		m->n_segments = m->segments ? h->e_phnum : 0;
		read_tables(m, fd, h);
	}
	ct_free(h);
}

static void open_file(struct mapping *m)
{
	struct stat st;
	int fd;

	m->opened = true;
	fd = open(m->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* the path may now be a FIFO */
	if (fd < 0)
		return;
	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && (uint64_t)st.st_ino == m->inode)
		read_elf(m, fd);
	close(fd);
}

/* Converts an offset in the file to the address that symbols use. */
static bool to_virtual(const struct mapping *m, uint64_t offset, uint64_t *out)
{
	for (int i = 0; i < m->n_segments; i++) {
		const Elf64_Phdr *p = &m->segments[i];

		if (p->p_type != PT_LOAD || offset < p->p_offset || offset - p->p_offset >= p->p_filesz)
			continue;
		*out = p->p_vaddr + (offset - p->p_offset);
		return true;
	}
	return false;
}

static const char *find_function(const struct mapping *m, uint64_t at, uint64_t *start)
{
	for (size_t k = 0; k < CT_ARRAY_LEN(m->tables); k++) {
		const struct table *t = &m->tables[k];

		for (size_t i = 0; i < t->n; i++) {
			const Elf64_Sym *s = &t->symbols[i];

			if (ELF64_ST_TYPE(s->st_info) != STT_FUNC || at < s->st_value ||
			    at - s->st_value >= s->st_size || s->st_name >= t->names_bytes)
				continue;
			*start = s->st_value;
			return t->names + s->st_name;
		}
	}
	return NULL;
}

void ct_symbols_name(ct_symbols *s, uint64_t address, bool return_address, char *buf, size_t len)
{
	for (size_t i = 0; i < s->n; i++) {
		struct mapping *m = &s->maps[i];
		const char *file = strrchr(m->path, '/') + 1, *name = NULL;
		uint64_t offset, at, start;

		if (address < m->start || address >= m->end)
			continue;
		offset = address - m->start + m->offset;
		if (!m->opened)
			open_file(m);
		if (to_virtual(m, offset, &at))
			name = find_function(m, at - return_address, &start);
		if (name)
			snprintf(buf, len, "%s+0x%" PRIx64 " (%s)", name, at - start, file);
		else
			snprintf(buf, len, "%s+0x%" PRIx64, file, offset);
		return;
	}
	snprintf(buf, len, "0x%" PRIx64 " (generated code)", address);
}
