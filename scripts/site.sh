#!/usr/bin/env bash
# Builds a static web site from README.md and docs/: scripts/site.sh [DIRECTORY]     default: build/site
# It needs mkdocs, a Debian package. The pages load nothing from the network. A link to a page that does not exist is an error.
set -euo pipefail
case ${1:-} in
-h | --help)
	sed -n '2,3s/^# //p' "$0"
	exit 0
	;;
esac
out=$(realpath -m "${1:-build/site}")
cd "$(dirname "$0")/.."
command -v mkdocs >/dev/null || { echo "site: there is no mkdocs; install it: apt-get install mkdocs" >&2; exit 2; }

source=$(mktemp -d)
trap 'rm -rf "$source"' EXIT
mkdir "$source/docs"
cp docs/* "$source/docs"
cp LICENSE "$source/docs"
sed -i 's#](\.\./README.md#](index.md#g' "$source"/docs/*.md
sed 's#](docs/#](#g' CONTRIBUTING.md >"$source/docs/CONTRIBUTING.md"
sed 's#](docs/#](#g' README.md >"$source/docs/index.md"
{
	echo 'site_name: ctrain'
	echo 'use_directory_urls: false' # also works without a web server
	echo 'theme: {name: mkdocs, highlightjs: false, include_search_page: false}'
	echo 'markdown_extensions: [tables, fenced_code, sane_lists, {toc: {permalink: true}}]'
	echo 'nav:'
	echo '  - Start: index.md'
	# The menu has the sections and pages of README's list of pages, in its order.
	sed -n '/^## Documentation/,/^## Build/p' README.md | sed -nE \
		-e 's/^\*\*(.*)\*\*$/  - \1:/p' \
		-e 's/^\| \[docs\/(.*\.md)\].*/    - \1/p'
} >"$source/mkdocs.yml"
mkdocs build --quiet --strict --clean --config-file "$source/mkdocs.yml" --site-dir "$out"
echo "site: $out/index.html"
