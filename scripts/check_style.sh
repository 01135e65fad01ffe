#!/usr/bin/env bash
# Checks the project's rules that no compiler checks (docs/ARCHITECTURE.md). Usage: scripts/check_style.sh [ROOT [ARROWS]]
# Prints each offence as file:line: reason on standard output and ends with 1 when there is one; warnings do not count.
#   1 layers     an include goes to the own directory or to a directory that ARROWS (scripts/arrows.txt) allows, and directories do not
#                include each other in a circle; nothing but tests includes tests; paths start at the root; a header *_impl.h is private to
#                its directory and the directories below it
#   2 ownership  one file or directory includes a foreign library's header; one file reads a CT_WITH_X
#   3 banned     functions that are unsafe or bypass base/mem, OpenMP pragmas
#   4 size       files over 700 lines (a warning over 500); directories with over 40 source files
#   5 headers    every header compiles alone, and a source file includes its own header first
#   6 promises   a TODO names its issue (#12)
#   7 exit       only trainer/main.c calls exit
#   8 sleeps     tests wait for events, not for times: only tests/pause.h, the harness and a few files with a reason sleep
#   9 names      functions that a private header declares begin with ct__, others with ct_
# Tests and benches may use any library, the C heap, assert and exit.
set -u

root=${1:-$(dirname "$0")/..}
arrows=$(realpath "${2:-$(dirname "$0")/arrows.txt}") || exit 2
cd "$root" || exit 2
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT

for directory in base nn data dist infer trainer tests bench; do
	[ -d "$directory" ] && find "$directory" -type f \( -name '*.c' -o -name '*.h' -o -name '*.def' -o -name '*.cc' -o -name '*.hh' -o -name '*.cu' -o -name '*.cuh' \)
done | LC_ALL=C sort > "$work/files"
: > "$work/scripts"
if [ -d tests ]; then
	find tests -type f -name '*.py' | LC_ALL=C sort > "$work/scripts"
fi
if ! [ -s "$work/files" ]; then
	echo "check_style: no sources under $(pwd)" >&2
	exit 2
fi

cat > "$work/rules.awk" <<'AWK'
BEGIN {
	while ((getline line < arrows_file) > 0)
		if (line !~ /^#/ && split(line, part, ":") == 2)
			arrow(part[1], part[2])
	split("base=base nn=base,nn data=base,data dist=base,dist infer=base,nn,data,infer trainer=base,nn,data,dist,infer,trainer", layers, " ")
	for (i in layers) {
		split(layers[i], part, "=")
		n = split(part[2], to, ",")
		for (j = 1; j <= n; j++)
			allowed[part[1], to[j]] = 1
		known[part[1]] = 1
	}
	known["tests"] = known["bench"] = 1

	# Header (a regular expression on the name between the brackets), the files or directories that may include it.
	own("^jansson(_config)?[.]h$", "base/json.c")
	own("^nettle/", "base/hash/sha256.c")
	own("^dlfcn[.]h$", "base/process/module.c")
	own("^(oneapi/dnnl/)?dnnl.*[.]h(pp)?$", "nn/onednn/dnnl/")
	own("^omp[.]h$", "base/parallel.c")
	own("^(cuda|cudnn|cublas).*[.]h$", "base/device/cuda/ nn/cuda/")
	own("^nccl.*[.]h$", "dist/comm/nccl/")
	own("^zlib[.]h$", "data/files/inflate.c")
	own("^libdeflate[.]h$", "data/files/inflate.c")
	own("^(turbo)?(jpeg(lib)?|jerror)[.]h$", "data/image/jpeg.c data/image/jpeg_encode.c")
	own("^s?png[.]h$", "data/image/png.c")
	own("^gloo/", "dist/comm/gloo/")
	own("^mpi(-ext)?[.]h$", "dist/comm/mpi/mpi_engine.c dist/comm/mpi/mpi_process.c")
	own("^hwloc([.]h$|/)", "trainer/plan/topology.c")
	own("^yaml[.]h$", "trainer/config/yaml_events.c")

	# Back ends: every header in such a directory is private to it, whatever its name.
	split("base/device/cuda nn/ref nn/onednn nn/cuda dist/comm/shm dist/comm/gloo dist/comm/mpi dist/comm/nccl", backends, " ")

	ban("atoi atol atoll atof", "does not report errors: use ct_parse_i64 or ct_parse_f64", 1)
	ban("sprintf vsprintf strcpy stpcpy strcat strncat gets", "does not know the buffer's end: use snprintf or ct_str", 1)
	ban("rand srand random srandom drand48", "depends on who asked before: use base/rng.h", 1)
	ban("strtok tmpnam mktemp", "is not safe", 1)
	ban("system popen", "runs a shell", 0)
	ban("malloc calloc realloc reallocarray free posix_memalign aligned_alloc strdup strndup asprintf vasprintf",
	    "goes round base/mem.h", 0)
	ban("alloca", "has no limit: use base/mem.h", 1)
	ban("assert", "vanishes with NDEBUG: CT_ASSERT for our bugs, CT_FAIL for input", 0)
	# Tests that sleep, and why.
	sleeper("tests/pause.h", "the pause of loops that wait for an event")
	sleeper("tests/e2e/harness.py", "the pause of loops that wait for an event")
	sleeper("tests/lazy/lazy.c", "the pause of the device's own loop, too short for pause.h")
	sleeper("tests/soft_gpu/cudnn/execute.c", "plays a slow plan")
	sleeper("tests/e2e/slow_open.c", "plays a slow disk")
	sleeper("tests/e2e/test_stragglers.py", "a rank that is stopped for most of the time is the load")
	sleeper("tests/e2e/test_host_faults.py", "the fault lasts this long")
	sleeper("tests/e2e/test_live.py", "nothing ends although every deadline passes")
	sleeper("tests/e2e/test_ends.py", "kills at a random moment")
	sleeper("tests/e2e/test_lazy.py", "kills at a random moment")

	ban("exit quick_exit", "only trainer/main.c ends the program", 0)
}

function sleeper(file, why) { may_sleep[file] = why }

# A poll or select without descriptors is a sleep, too.
function check_sleep(code) {
	if (code ~ /(^|[^A-Za-z0-9_.>])(sleep|usleep|nanosleep|clock_nanosleep|thrd_sleep)[ \t]*[(]/ ||
	    code ~ /(^|[^A-Za-z0-9_.>])p?poll[ \t]*[(][ \t]*(NULL|0|nullptr)[ \t]*,/ ||
	    code ~ /(^|[^A-Za-z0-9_.>])p?select[ \t]*[(][^,]*,[ \t]*(NULL|0)[ \t]*,[ \t]*(NULL|0)[ \t]*,[ \t]*(NULL|0)[ \t]*,/)
		offence("a test that sleeps: wait for the event, with pause_briefly of tests/pause.h if nothing reports it")
}

function own(header, file) { owned[++n_owned] = header; owner[n_owned] = file }

function arrow(from, to,    list, n, i) {
	declared[from] = 1
	n = split(to, list, " ")
	for (i = 1; i <= n; i++)
		arrows[from, list[i]] = 1
}

# Looks for a circle of directories: a depth-first search along the arrows and the includes. state: 1 on the path, 2 done.
function search(from, path,    to, circle, i) {
	state[from] = 1
	for (i = 1; i <= n_directories; i++) {
		to = directories[i]
		if (to == from || !((from, to) in includes || (from, to) in arrows || (from, "*" top_of(to)) in arrows))
			continue
		if (state[to] == 1) {
			circle = path " -> " to
			print "scripts/arrows.txt:1: directories include each other in a circle:" substr(circle, index(circle, " " to " "))
			bad = 1
		} else if (!state[to]) {
			search(to, path " -> " to)
		}
	}
	state[from] = 2
}

function check_directories(    at, i) {
	for (i = 1; i <= n_directories; i++) {
		at = directories[i]
		if (!state[at])
			search(at, " " at)
		if (n_files[at] > 40) {
			print at ":1: " n_files[at] " source files: make sub-directories (limit 40)"
			bad = 1
		}
	}
}

function directory_of(path) { sub(/\/[^\/]*$/, "", path); return path }

function is_below(path, dir) { return index(path "/", dir "/") == 1 }

# The directory whose files may include the header: its own for *_impl.h, a back end's for all of its headers, else "".
function private_to(path,    i) {
	for (i in backends)
		if (is_below(path, backends[i]))
			return backends[i]
	return path ~ /_impl[.]h$/ ? directory_of(path) : ""
}

function ban(names, why, in_tests,    list, n, i) {
	n = split(names, list, " ")
	for (i = 1; i <= n; i++) {
		banned[list[i]] = why
		banned_in_tests[list[i]] = in_tests
	}
}

function offence(why) { print FILENAME ":" FNR ": " why; bad = 1 }

# The code of a line without comments and without the contents of quotes. Remembers whether a block comment continues.
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

function may_include(path,    to) {
	to = top_of(path)
	if (folder == "bench")
		return to != "tests"
	if (folder != "tests")
		return (folder, to) in allowed
	# A unit test of X includes X and lower only; e2e, golden and the like anything.
	return to == "tests" || !(test_of in known) || (test_of, to) in allowed
}

function top_of(path) { sub(/\/.*/, "", path); return path }

# Rules between the sub-directories of the product.
function check_arrow(path,    to, owner_dir) {
	to = directory_of(path)
	includes[directory, to] = 1
	owner_dir = private_to(path)
	if (owner_dir != "" && !is_below(FILENAME, owner_dir))
		offence("\"" path "\" is private to " owner_dir)
	else if (!(directory in declared) && directory ~ /\//)
		offence("scripts/arrows.txt does not list " directory)
	else if (to != directory && top_of(to) != "base" && directory in declared && !((directory, to) in arrows) &&
		 !((directory, "*" top_of(to)) in arrows))
		offence(directory " must not include \"" path "\"")
}

function named(list) { gsub(/ /, " and ", list); return list }

function owns(list,    one, n, i) {
	n = split(list, one, " ")
	for (i = 1; i <= n; i++)
		if (FILENAME == one[i] || (one[i] ~ /\/$/ && index(FILENAME, one[i]) == 1))
			return 1
	return 0
}

function check_include(line,    path, i, quoted) {
	sub(/^[ \t]*#[ \t]*include[ \t]*/, "", line)
	quoted = substr(line, 1, 1) == "\""
	if (!quoted && substr(line, 1, 1) != "<")
		return
	path = substr(line, 2)
	sub(/[">].*/, "", path)
	if (n_includes++ == 0 && own_header != "" && path != own_header)
		offence("the first include is not the file's own header \"" own_header "\"")
	if (quoted) {
		if (path !~ /\// || !(top_of(path) in known))
			offence("include \"" path "\" does not start at the root of the project")
		else if (!may_include(path))
			offence((folder == "tests" ? "tests/" test_of : folder) " must not include \"" path "\"")
		else if (folder != "tests" && folder != "bench")
			check_arrow(path)
	}
	if (folder == "tests" || folder == "bench")
		return
	for (i = 1; i <= n_owned; i++) {
		if (path ~ owned[i] && !owns(owner[i]))
			offence("only " named(owner[i]) " may include <" path ">")
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
	directory = directory_of(FILENAME)
	if (folder != "tests" && folder != "bench" && n_files[directory]++ == 0)
		directories[++n_directories] = directory
	private_header = FILENAME ~ /[.]h$/ && folder != "tests" && folder != "bench" ? private_to(FILENAME) != "" : -1
	test_of = at[2]
	own_header = FILENAME
	if (sub(/[.](c|cc|cu)$/, ".h", own_header) == 0 || !(own_header in exists))
		own_header = ""
}

FILENAME == files { exists[$0] = 1; last = ""; next }

{
	lines = FNR
	if (FILENAME ~ /[.]py$/) {
		lines = 0 # no limit
		if ($0 ~ /(^|[^A-Za-z0-9_])time[.]sleep[(]|from time import.*sleep/ && !(FILENAME in may_sleep))
			offence("a test that sleeps: wait for the event, with until or pause of tests/e2e/harness.py")
		next
	}
	commented = in_comment
	code = code_of($0)
	if (folder == "tests" && !(FILENAME in may_sleep))
		check_sleep(code)
	if (!commented && code ~ /^[ \t]*#[ \t]*include/)
		check_include($0)
	else
		check_calls(code)
	# Functions are declared at the left margin.
	if (private_header >= 0 && code ~ /^[a-z].*[ *]ct_[a-z0-9_]+[(]/ && match(code, /ct_[a-z0-9_]+[(]/)) {
		name = substr(code, RSTART, RLENGTH - 1)
		if (private_header && name !~ /^ct__/)
			offence(name " is declared in a private header: its name begins with ct__")
		if (!private_header && name ~ /^ct__/)
			offence(name " is declared in a header that other directories include: ct__ is for private headers")
	}
	if (code ~ /^[ \t]*#[ \t]*pragma[ \t]+omp/ && FILENAME != "base/parallel.c")
		offence("an OpenMP pragma: loops on several threads go through base/parallel.h")
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
	check_directories()
	exit bad
}
AWK

status=0
# shellcheck disable=SC2046 # the paths contain no spaces
LC_ALL=C awk -v files="$work/files" -v arrows_file="$arrows" -f "$work/rules.awk" "$work/files" $(cat "$work/files" "$work/scripts") || status=1

# shellcheck disable=SC2317 # called by xargs
check_header() {
	local why
	case $1 in
	*_gloo*.h | *.hpp) return 0 ;; # C++
	esac
	why=$(printf '#include "%s"\n' "$1" | LC_ALL=C ${CC:-cc} -std=gnu17 -Werror=implicit -D_GNU_SOURCE -I. -x c -fsyntax-only - 2>&1) && return 0
	# Headers that need CUDA can be checked where it is installed.
	grep -qE '(cuda|cudnn|nccl)[a-z_]*[.]h: No such file' <<< "$why" && return 0
	printf '%s:1: does not compile alone: %s\n' "$1" "$(grep -m1 error <<< "$why")"
	return 1
}
export -f check_header
grep '\.h$' "$work/files" | xargs -r -P 2 -I{} bash -c 'check_header {}' || status=1

exit $status
