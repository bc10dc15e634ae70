import { Ollama } from "ollama";

const client = new Ollama({ host: process.env.GATEWAY });
const asked = { model: process.env.MODEL, messages: [{ role: "user", content: "Say hello" }] };
const report = async (name, ask) => {
  try {
    console.log(name, (await ask()) ? "ok" : "nothing came");
  } catch (error) {
    console.log(name, String(error).slice(0, 200));
  }
};
await report("text", async () => (await client.chat(asked)).message.content);
await report("stream", async () => {
  let text = "";
  for await (const piece of await client.chat({ ...asked, stream: true })) text += piece.message.content;
  return text;
});
