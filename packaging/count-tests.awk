# SPDX-License-Identifier: MIT
# Counts the cases in CTest's log: a cmocka program's own counts where it lived to print them, else one for the program.
function close_test(ended_well) {
    if (ended_well && cases) {
        passed += cases
    } else if (ended_well) {
        passed++
    } else {
        passed += cases
        failed += bad ? bad : 1
    }
    cases = bad = 0
}
/^\[  PASSED  \] [0-9]+ test/ { cases += $4 }
/^\[  FAILED  \] [0-9]+ test/ { bad += $4 }
/^[0-9]+ passed, [0-9]+ failed/ { cases += $1; bad += $3 }
/^Test (Passed|Pass Reason)/ { close_test(1) }
/^Test (Failed|Fail Reason|Timeout)/ { close_test(0) }
END { print passed + 0, failed + 0 }
