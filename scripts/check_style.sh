#!/usr/bin/env bash
# The rules of the house that no compiler checks (docs/ARCHITECTURE.md): usage: scripts/check_style.sh [ROOT]
# Prints each offence as file:line: reason on standard output and ends with 1 when there is one; warnings do not count.
#   1 layers     an include goes to the own folder or down; nothing but tests includes tests; paths start at the root
#   2 ownership  one file includes a foreign library's header; one file reads a CT_WITH_X
#   3 banned     functions that are unsafe or go round base/mem, OpenMP pragmas
#   4 size       files over 700 lines (a warning over 500)
#   5 headers    every header compiles alone, and a source file includes its own header first
#   6 promises   a TODO names its issue (#12)
#   7 exit       only trainer/main.c calls exit
# Tests and benches may use any library, the C heap, assert and exit.
set -u

root=${1:-$(dirname "$0")/..}
cd "$root" || exit 2
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT

for folder in base nn data dist trainer tests bench; do
	[ -d "$folder" ] && find "$folder" -type f \( -name '*.c' -o -name '*.h' -o -name '*.cc' -o -name '*.cu' \)
done | LC_ALL=C sort > "$work/files"
if ! [ -s "$work/files" ]; then
	echo "check_style: no sources under $(pwd)" >&2
	exit 2
fi

cat > "$work/rules.awk" <<'AWK'
BEGIN {
	split("base=base nn=base,nn data=base,data dist=base,dist trainer=base,nn,data,dist,trainer", arrows, " ")
	for (i in arrows) {
		split(arrows[i], part, "=")
		n = split(part[2], to, ",")
		for (j = 1; j <= n; j++)
			allowed[part[1], to[j]] = 1
		known[part[1]] = 1
	}
	known["tests"] = known["bench"] = 1

	# Header (a regular expression on what stands between the brackets), the files that may include it.
	own("^jansson(_config)?[.]h$", "base/json.c")
	own("^nettle/", "base/sha256.c")
	own("^dlfcn[.]h$", "base/module.c")
	own("^(cuda|cuda_runtime|cuda_runtime_api)[.]h$", "base/device_cuda.c")
	own("^(oneapi/dnnl/)?dnnl.*[.]h(pp)?$", "nn/dnnl_shim.c nn/dnnl_desc.c")
	own("^omp[.]h$", "nn/dnnl_shim.c")
	own("^cudnn.*[.]h$", "nn/cudnn_shim.c")
	own("^cublas.*[.]h$", "nn/cublas_shim.c")
	own("^zlib[.]h$", "data/inflate.c")
	own("^libdeflate[.]h$", "data/inflate.c")
	own("^(turbo)?(jpeg(lib)?|jerror)[.]h$", "data/jpeg.c data/jpeg_encode.c")
	own("^s?png[.]h$", "data/png.c")
	own("^gloo/", "dist/gloo_engine.cc")
	own("^nccl[.]h$", "dist/comm_nccl.c")
	own("^mpi[.]h$", "dist/comm_mpi.c")
	own("^yaml[.]h$", "trainer/yaml_events.c")

	ban("atoi atol atoll atof", "does not report errors: use ct_parse_i64 or ct_parse_f64", 1)
	ban("sprintf vsprintf strcpy stpcpy strcat strncat gets", "does not know the buffer's end: use snprintf or ct_str", 1)
	ban("rand srand random srandom drand48", "depends on who asked before: use base/rng.h", 1)
	ban("strtok tmpnam mktemp", "is not safe", 1)
	ban("system popen", "runs a shell", 0)
	ban("malloc calloc realloc reallocarray free posix_memalign aligned_alloc strdup strndup asprintf vasprintf",
	    "goes round base/mem.h", 0)
	ban("alloca", "has no limit: use base/mem.h", 1)
	ban("assert", "vanishes with NDEBUG: CT_ASSERT for our bugs, CT_FAIL for input", 0)
	ban("exit quick_exit", "only trainer/main.c ends the program", 0)
}

function own(header, file) { owned[++n_owned] = header; owner[n_owned] = file }

function ban(names, why, in_tests,    list, n, i) {
	n = split(names, list, " ")
	for (i = 1; i <= n; i++) {
		banned[list[i]] = why
		banned_in_tests[list[i]] = in_tests
	}
}

function offence(why) { print FILENAME ":" FNR ": " why; bad = 1 }

# The code of a line: comments and what stands in quotes are left out. Keeps whether a block comment goes on.
function code_of(line,    out, mark) {
	out = ""
	for (;;) {
		if (in_comment) {
			if (!match(line, /\*\//))
				return out
			line = substr(line, RSTART + 2)
			in_comment = 0
			out = out " "
		}
		if (!match(line, /"([^"\\]|\\.)*"|'([^'\\]|\\.)*'|\/\/|\/\*/))
			return out line
		mark = substr(line, RSTART, RLENGTH)
		out = out substr(line, 1, RSTART - 1)
		line = substr(line, RSTART + RLENGTH)
		if (mark == "//")
			return out
		if (mark == "/*")
			in_comment = 1
		else
			out = out substr(mark, 1, 1) substr(mark, 1, 1)
	}
}

function may_include(to) {
	if (folder == "bench")
		return to != "tests"
	if (folder != "tests")
		return (folder, to) in allowed
	# A unit test of X includes X and lower only; e2e, golden and the like anything.
	return to == "tests" || !(test_of in known) || (test_of, to) in allowed
}

function check_include(line,    path, to, i, quoted) {
	sub(/^[ \t]*#[ \t]*include[ \t]*/, "", line)
	quoted = substr(line, 1, 1) == "\""
	if (!quoted && substr(line, 1, 1) != "<")
		return
	path = substr(line, 2)
	sub(/[">].*/, "", path)
	if (n_includes++ == 0 && own_header != "" && path != own_header)
		offence("the first include is not the file's own header \"" own_header "\"")
	if (quoted) {
		to = path
		sub(/\/.*/, "", to)
		if (path !~ /\// || !(to in known))
			offence("include \"" path "\" does not start at the root of the project")
		else if (!may_include(to))
			offence((folder == "tests" ? "tests/" test_of : folder) " must not include \"" path "\"")
	}
	if (folder == "tests" || folder == "bench")
		return
	for (i = 1; i <= n_owned; i++) {
		if (path ~ owned[i] && !index(" " owner[i] " ", " " FILENAME " "))
			offence("only " owner[i] " may include <" path ">")
	}
}

function check_calls(code,    name, before, test) {
	test = folder == "tests" || folder == "bench"
	while (match(code, /[A-Za-z_][A-Za-z0-9_]*[ \t]*[(]/)) {
		name = substr(code, RSTART, RLENGTH - 1)
		before = substr(code, 1, RSTART - 1)
		code = substr(code, RSTART + RLENGTH)
		sub(/[ \t]+$/, "", name)
		# Members of a table may bear any name.
		if (!(name in banned) || before ~ /([.]|->)[ \t]*$/ || (test && !banned_in_tests[name]))
			continue
		if (name ~ /exit/ ? FILENAME == "trainer/main.c" : FILENAME == "base/mem.c")
			continue
		offence(name "() " (name ~ /exit/ ? "is called: " : "") banned[name])
	}
}

function end_of_file() {
	if (lines > 700)
		print last ":" lines ": " lines " lines: split it (limit 700)"
	else if (lines > 500)
		print last ":" lines ": warning: " lines " lines: over 500 wants a reason" > "/dev/stderr"
	bad = bad || lines > 700
}

FNR == 1 {
	if (last != "")
		end_of_file()
	last = FILENAME
	in_comment = n_includes = 0
	split(FILENAME, at, "/")
	folder = at[1]
	test_of = at[2]
	own_header = FILENAME
	if (sub(/[.](c|cc|cu)$/, ".h", own_header) == 0 || !(own_header in exists))
		own_header = ""
}

FILENAME == files { exists[$0] = 1; last = ""; next }

{
	lines = FNR
	commented = in_comment
	code = code_of($0)
	if (!commented && code ~ /^[ \t]*#[ \t]*include/)
		check_include($0)
	else
		check_calls(code)
	if (code ~ /^[ \t]*#[ \t]*pragma[ \t]+omp/ && FILENAME != "nn/dnnl_shim.c")
		offence("an OpenMP pragma: threads come from base/thread.h and the engines")
	if ($0 ~ /(^|[^A-Za-z0-9_])(TODO|FIXME)([^A-Za-z0-9_]|$)/ && $0 !~ /#[0-9]+/)
		offence("a TODO without its issue's number (#12)")
	if (code ~ /^[ \t]*#[ \t]*(if|elif)/ && match(code, /CT_WITH_[A-Z0-9_]+/)) {
		option = substr(code, RSTART, RLENGTH)
		if (option in reader && reader[option] != FILENAME)
			offence(option " is read by " reader[option] " already: only the registry may")
		reader[option] = FILENAME
	}
}

END {
	end_of_file()
	exit bad
}
AWK

status=0
# shellcheck disable=SC2046 # the paths are ours and hold no blanks
LC_ALL=C awk -v files="$work/files" -f "$work/rules.awk" "$work/files" $(cat "$work/files") || status=1

# shellcheck disable=SC2317 # called by xargs
check_header() {
	local why
	case $1 in
	*_gloo*.h | *.hpp) return 0 ;; # C++
	esac
	why=$(printf '#include "%s"\n' "$1" | LC_ALL=C ${CC:-cc} -std=gnu17 -D_GNU_SOURCE -I. -x c -fsyntax-only - 2>&1) && return 0
	printf '%s:1: does not compile alone: %s\n' "$1" "$(grep -m1 error <<< "$why")"
	return 1
}
export -f check_header
grep '\.h$' "$work/files" | xargs -r -P 2 -I{} bash -c 'check_header {}' || status=1

exit $status
