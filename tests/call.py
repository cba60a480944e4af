"""call.py TEST FUNCTION WORD …: calls a function of the Python file beside a script test, test_x.py of test_x.sh, or one of
small_set.py."""
import os
import runpy
import sys

sys.dont_write_bytecode = True
import small_set

path = sys.argv[1].removesuffix(".sh") + ".py"
functions = vars(small_set) | (runpy.run_path(path) if os.path.exists(path) else {})
functions[sys.argv[2]](*sys.argv[3:])
