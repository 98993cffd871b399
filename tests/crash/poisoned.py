"""The `nightbatch` command with an engine that some prompts kill: run this file in its place.

POISON says which prompts, by what they contain ("" is in all of them), and POISON_KIND how they kill: segv, stop, kill or
memory. POISON_AFTER is with which token of theirs.
"""

import os
import signal
import sys

import flows.cli
import tasks.wiring
import tasks.worker
from tasks.core.request import StepOutput
from tasks.engine.echo import EchoEngine

SIGNALS = {"segv": signal.SIGSEGV, "stop": signal.SIGSTOP, "kill": signal.SIGKILL}


class PoisonedEngine(EchoEngine):
    """Dies in the step that would give a marked prompt its token number POISON_AFTER."""

    def step(self) -> list[StepOutput]:
        for running in list(self._running.values())[: self._max_num_seqs]:
            prompt = bytes(token - 1 for token in running.sequence.prompt_token_ids).decode(errors="replace")
            if os.environ["POISON"] in prompt and len(running.token_ids) >= int(os.environ.get("POISON_AFTER", "0")):
                self._die(os.environ["POISON_KIND"])
        return super().step()

    def _die(self, kind: str) -> None:
        if kind == "memory":
            raise MemoryError("no room for this prompt")
        os.kill(os.getpid(), SIGNALS[kind])


if __name__ == "__main__":
    if sys.argv[1] == "worker":
        vars(tasks.worker)["EchoEngine"] = PoisonedEngine
        sys.exit(tasks.worker.main(sys.argv[2:]))
    tasks.wiring._WORKER[:] = [sys.executable, "-P", __file__, "worker"]
    sys.exit(flows.cli.main())
