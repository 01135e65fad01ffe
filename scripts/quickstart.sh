#!/usr/bin/env bash
# From a fresh Debian or Ubuntu machine to a trained model: installs packages, builds, downloads MNIST, trains.
#   scripts/quickstart.sh [CONFIG] [KEY=VALUE ...] [OPTIONS]     default: configs/mnist_ddp.yaml
# Arguments after CONFIG are passed to ctrain. Run the script again after an interruption: training continues.
set -euo pipefail
cd "$(dirname "$0")/.."
case ${1:-} in
-h | --help)
	sed -n '2,4s/^# //p' "$0"
	exit 0
	;;
esac
config=configs/mnist_ddp.yaml
if [[ "${1:-}" == *.yaml || "${1:-}" == *.yml ]]; then
	config=$1
	shift
fi

say() { echo "quickstart: $* ($SECONDS s)"; }

# On a terminal, the build updates one line. Elsewhere, one line for each quarter replaces a line per file; what the compiler says remains.
build() {
	if [ -t 1 ]; then
		scripts/build.sh release -- ctrain
	else
		scripts/build.sh release -- ctrain | awk -F'[][/]' '
			/^\[[0-9]+\/[0-9]+\] / { part = int(4 * $2 / $3); if (part > done) { done = part; print "built " 25 * part " %"; fflush() } next }
			{ print; fflush() }'
	fi
}

say "step 1 of 4: install packages (the first time, this takes about a minute)"
scripts/setup.sh
say "step 2 of 4: build the program"
build
ctrain=build/release/ctrain
say "step 3 of 4: prepare the data"

# The data directory follows from the config and this command line: ctrain prints the resolved values.
resolved=$($ctrain config dump "$config" "$@")
key() { # of section data
	sed -n "/^data:/,/^[^ ]/s/^  $1: *\"\\{0,1\\}\\([^\"]*\\)\"\\{0,1\\}\$/\\1/p" <<<"$resolved"
}
name=$(key name)
dir=$(key dir)
files=0
for file in {train,t10k}-{images-idx3,labels-idx1}-ubyte; do
	[ ! -e "$dir/$file" ] && [ ! -e "$dir/$file.gz" ] || files=$((files + 1))
done

if [ "$name" = fashion_mnist ] && [ $files != 4 ]; then
	scripts/get_mnist.sh --fashion "$dir"
elif [ "$name" = mnist ] && [ $files != 4 ] && ! scripts/get_mnist.sh "$dir"; then
	[ $files = 0 ] || exit 1 # part of the real data is there: do not mix it with drawn digits
	cat >&2 <<-TEXT

	*******************************************************************************
	*  MNIST could not be downloaded. Training on DRAWN DIGITS instead: images    *
	*  made by this program (ctrain data digits). The accuracy is not MNIST's.    *
	*******************************************************************************
	   To get the real data later:
	   rm -r $dir && scripts/get_mnist.sh $dir

	TEXT
	$ctrain data digits --out "$dir"
fi

say "step 4 of 4: train"
# If this script is killed, ctrain gets SIGTERM: it saves and ends.
status=0
setpriv --pdeathsig TERM $ctrain "$config" "$@" || status=$?
[ $status = 0 ] || exit $status
cat <<-TEXT

	quickstart: done. The program is $ctrain. Next:
	  $ctrain runs
	      list the runs with their results
	  $ctrain eval $config --checkpoint best
	      evaluate the best checkpoint
	  $ctrain help
	      list all commands
	  sudo cmake --install build/release
	      install the program as "ctrain" under /usr/local
	The line "report" above names a page for a browser with curves and mistakes. docs/FIRST_RUN.md explains what the run has written.
TEXT
