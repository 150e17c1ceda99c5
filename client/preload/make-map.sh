#!/bin/sh
# SPDX-License-Identifier: LGPL-2.1-or-later
# calls.def -> linker version script: exactly the interposed symbols are visible.
set -eu
echo '{ global:'
sed -n 's/^CALL_[A-Z]*(\([A-Za-z0-9_]*\),.*/\1;/p' "$1"
echo 'local: *; };'
