// The requests of an Immich 3 server, by the same means: Node's fetch, FormData, Blob and AbortSignal, with its fields,
// their names and their order. Prints what it gets as JSON. Arguments: URL PHOTO, and a URL where nobody listens.
import { readFile } from "node:fs/promises";

const [url, photo, deadUrl] = process.argv.slice(2);
const MODEL = "buffalo_l"; // Immich's default
const REQUESTS = {
  faces: {
    "facial-recognition": {
      detection: { modelName: MODEL, options: { minScore: 0.7 } },
      recognition: { modelName: MODEL },
    },
  },
  picture: { clip: { visual: { modelName: "ViT-B-32__openai" } } },
  text: { clip: { textual: { modelName: "ViT-B-32__openai", options: { language: undefined } } } },
  ocr: {
    ocr: {
      detection: { modelName: "PP-OCRv5_mobile", options: { minScore: 0.5, maxResolution: 736 } },
      recognition: { modelName: "PP-OCRv5_mobile", options: { minScore: 0.8 } },
    },
  },
};

async function form(request, payload) {
  const data = new FormData();
  data.append("entries", JSON.stringify(request));
  if (payload.path === undefined) data.append("text", payload.text);
  else data.append("image", new Blob([new Uint8Array(await readFile(payload.path))]));
  return data;
}

async function predict(request, payload, urls) {
  const body = await form(request, payload); // one form for all servers
  for (const each of urls) {
    try {
      const response = await fetch(new URL("/predict", each), { method: "POST", body });
      if (response.ok) return await response.json();
      return { status: response.status, statusText: response.statusText };
    } catch {} // the next server
  }
  return null;
}

const ping = await fetch(new URL("/ping", url), { signal: AbortSignal.timeout(2000) });
const answers = { ping: ping.ok };
answers.faces = await predict(REQUESTS.faces, { path: photo }, [deadUrl, url]);
for (const name of ["picture", "ocr"]) answers[name] = await predict(REQUESTS[name], { path: photo }, [url]);
answers.text = await predict(REQUESTS.text, { text: "a cat on a chair" }, [url]);
answers.broken = await predict(REQUESTS.faces, { path: process.argv[1] }, [url]);
// All at once, while the health check goes on.
const together = Array.from({ length: 8 }, () => predict(REQUESTS.faces, { path: photo }, [url]));
const during = await fetch(new URL("/ping", url), { signal: AbortSignal.timeout(2000) });
answers.pingDuring = during.ok;
answers.together = (await Promise.all(together)).every((each) => JSON.stringify(each) === JSON.stringify(answers.faces));
console.log(JSON.stringify(answers));
