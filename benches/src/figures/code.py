"""Times `1+1` through jupyter_client's own blocking client, in a kernel of its own; prints seconds, a line each."""

import sys
import time

from jupyter_client.manager import start_new_kernel

manager, client = start_new_kernel()
try:
    for _ in range(int(sys.argv[1])):
        shown = []
        began = time.perf_counter()
        client.execute_interactive("1+1", output_hook=lambda message: shown.append(message["msg_type"]))
        took = time.perf_counter() - began
        assert "execute_result" in shown, shown
        print(took)
finally:
    client.stop_channels()
    manager.shutdown_kernel(now=True)
