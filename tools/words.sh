#!/usr/bin/env bash
# words.sh: refuses words that slow readers down. docs/glossary.md has the words to use.
set -euo pipefail
cd "$(dirname "$0")/.."
words='[Nn]obody|[Ww]hoever|[Ss]omebody|[Aa]new|[Mm]end(s|ed)?|[Ii]ncumbent|[Gg]oings|[Uu]nder way'
# Tests use the account nobody, and test data keeps the words of its sources.
if git grep -nwE "$words" -- ':!tools/words.sh' ':!*.sum' ':!*/testdata/*' ':!*_test.go' ':!CHANGELOG.md'; then
  echo 'These words are not used here; see docs/glossary.md.' >&2
  exit 1
fi
