import instructor
from openai import OpenAI
from pydantic import BaseModel
from tried import HELLO, MODEL, URL, tried


class Answer(BaseModel):
    greeting: bool


def ask(mode):
    client = instructor.from_openai(OpenAI(base_url=f"{URL}/v1", api_key="none"), mode=mode)
    return client.chat.completions.create(model=MODEL, messages=list(HELLO), response_model=Answer, max_retries=0)


tried(
    tools=lambda: ask(instructor.Mode.TOOLS),
    json=lambda: ask(instructor.Mode.JSON),
    json_schema=lambda: ask(instructor.Mode.JSON_SCHEMA),
    md_json=lambda: ask(instructor.Mode.MD_JSON),
)
