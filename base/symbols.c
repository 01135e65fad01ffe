#include "base/symbols.h"

#include <elf.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"

/* A mapping of a file. Mappings of the same file are opened separately, because there is usually one that is
 * executable. */
struct mapping {
	uint64_t start, end, offset, inode;
	char path[512];
	bool opened;
	const unsigned char *data; /* the file; NULL: not opened, or not usable */
	size_t bytes;
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

void ct_symbols_destroy(ct_symbols *s)
{
	for (size_t i = 0; s && i < s->n; i++) {
		if (s->maps[i].data)
			munmap((void *)(uintptr_t)s->maps[i].data, s->maps[i].bytes);
	}
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

/* Returns a part of the file, or NULL if it is not completely in the file. */
static const void *part(const struct mapping *m, uint64_t offset, uint64_t bytes)
{
	return offset <= m->bytes && bytes <= m->bytes - offset ? m->data + offset : NULL;
}

static const Elf64_Ehdr *header_of(const struct mapping *m)
{
	const Elf64_Ehdr *h = part(m, 0, sizeof(*h));

	if (!h || memcmp(h->e_ident, ELFMAG, SELFMAG) != 0 || h->e_ident[EI_CLASS] != ELFCLASS64 ||
	    h->e_phentsize != sizeof(Elf64_Phdr) || h->e_shentsize != sizeof(Elf64_Shdr))
		return NULL;
	return h;
}

static void open_file(struct mapping *m)
{
	struct stat st;
	int fd;

	m->opened = true;
	fd = open(m->path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && (uint64_t)st.st_ino == m->inode &&
	    st.st_size > 0) {
		void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);

		m->data = p == MAP_FAILED ? NULL : p;
		m->bytes = (size_t)st.st_size;
	}
	if (fd >= 0)
		close(fd);
	if (m->data && !header_of(m)) {
		munmap((void *)(uintptr_t)m->data, m->bytes);
		m->data = NULL;
	}
}

/* Converts an offset in the file to the address that symbols use. */
static bool to_virtual(const struct mapping *m, uint64_t offset, uint64_t *out)
{
	const Elf64_Ehdr *h = header_of(m);
	const Elf64_Phdr *p = part(m, h->e_phoff, (uint64_t)h->e_phnum * sizeof(*p));

	for (int i = 0; p && i < h->e_phnum; i++) {
		if (p[i].p_type != PT_LOAD || offset < p[i].p_offset || offset - p[i].p_offset >= p[i].p_filesz)
			continue;
		*out = p[i].p_vaddr + (offset - p[i].p_offset);
		return true;
	}
	return false;
}

/* Finds the function at an address in one symbol table. Returns NULL if there is none. */
static const char *find_in(const struct mapping *m, const Elf64_Shdr *table, const Elf64_Shdr *strings, uint64_t at,
			   uint64_t *start)
{
	const Elf64_Sym *s = part(m, table->sh_offset, table->sh_size);
	const char *names = part(m, strings->sh_offset, strings->sh_size);
	const uint64_t n = table->sh_size / sizeof(*s);

	for (uint64_t i = 0; s && names && i < n; i++) {
		if (ELF64_ST_TYPE(s[i].st_info) != STT_FUNC || at < s[i].st_value ||
		    at - s[i].st_value >= s[i].st_size || s[i].st_name >= strings->sh_size ||
		    !memchr(names + s[i].st_name, 0, strings->sh_size - s[i].st_name))
			continue;
		*start = s[i].st_value;
		return names + s[i].st_name;
	}
	return NULL;
}

static const char *find_function(const struct mapping *m, uint64_t at, uint64_t *start)
{
	static const unsigned kinds[] = {SHT_SYMTAB, SHT_DYNSYM};
	const Elf64_Ehdr *h = header_of(m);
	const Elf64_Shdr *s = part(m, h->e_shoff, (uint64_t)h->e_shnum * sizeof(*s));

	for (size_t k = 0; s && k < CT_ARRAY_LEN(kinds); k++) {
		for (int i = 0; i < h->e_shnum; i++) {
			const char *name;

			if (s[i].sh_type != kinds[k] || s[i].sh_link >= h->e_shnum)
				continue;
			name = find_in(m, &s[i], &s[s[i].sh_link], at, start);
			if (name)
				return name;
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
		if (m->data && to_virtual(m, offset, &at))
			name = find_function(m, at - return_address, &start);
		if (name)
			snprintf(buf, len, "%s+0x%" PRIx64 " (%s)", name, at - start, file);
		else
			snprintf(buf, len, "%s+0x%" PRIx64, file, offset);
		return;
	}
	snprintf(buf, len, "0x%" PRIx64 " (generated code)", address);
}
