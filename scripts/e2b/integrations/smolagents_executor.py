"""smolagents: an agent's code runs in a sandbox that keeps its variables from step to step."""

import PIL.Image
from smolagents.agents import CodeAgent
from smolagents.models import ChatMessage, MessageRole, Model
from smolagents.monitoring import AgentLogger, LogLevel
from smolagents.remote_executors import E2BExecutor
from smolagents.tools import tool
from smolagents.utils import AgentError


@tool
def double(number: int) -> int:
    """Doubles a number.

    Args:
        number: The number.
    """
    return 2 * number


class Script(Model):
    """A model that returns predefined steps."""

    def __init__(self, *steps):
        super().__init__(model_id="script")
        self.steps = list(steps)

    def generate(self, messages, **_):
        text = f"Thought: the next step.\n<code>\n{self.steps.pop(0)}\n</code>"
        return ChatMessage(role=MessageRole.ASSISTANT, content=text)


def executor():
    run = E2BExecutor([], AgentLogger(level=LogLevel.ERROR), timeout=600)
    try:
        run.send_variables({"given": [1, 2, 3]})
        run.send_tools({"double": double})
        assert run("total = sum(given)").output is None
        done = run("print('log'); double(total)")
        assert (done.output, done.logs.strip(), done.is_final_answer) == ("12", "log", False), done
        try:
            run("1 / 0")
        except AgentError as error:
            assert "ZeroDivisionError" in str(error), error
        else:
            raise AssertionError("an error was not raised")
        picture = run("from PIL import Image; Image.new('RGB', (7, 5), 'red')").output
        assert isinstance(picture, PIL.Image.Image) and picture.size == (7, 5), picture
        assert run("total").output == "6"
        # A package that one step installs is available in the next.
        assert "Requirement already satisfied" in run("!pip install numpy").logs
    finally:
        run.cleanup()


def agent():
    model = Script("x = double(20)\nprint(x)", "final_answer(x + 2)")
    with CodeAgent([double], model, executor_type="e2b", executor_kwargs={"timeout": 600}, verbosity_level=0) as agent:
        answer = agent.run("Compute the answer.")
        assert answer == 42, answer
        assert model.steps == [], model.steps


executor()
agent()
print("ok smolagents")
