// Streams between the browser and the daemon: what `send` answers is taken out of its frames and saved, and a file is
// given to `receive-stream` with its progress.
import { ApiError, call, csrfToken, parse, type Schemas } from "../api/client";

type SendPart = Schemas["SendPart"];
const HEAD = 5;

/** The frames of an answer of `send`: bytes of the stream, and what is told beside them. */
async function* frames(
  request: unknown,
  signal: AbortSignal,
): AsyncGenerator<{ bytes: Uint8Array } | { part: SendPart }> {
  const response = await call("/v1/send", {
    method: "POST",
    body: JSON.stringify(request),
    headers: { "content-type": "application/json" },
    signal,
  });
  const reader = response.body?.getReader();
  if (!reader) return;
  let head = new Uint8Array(0);
  let kind = 0;
  let left = 0;
  let told: Uint8Array[] = [];
  const joined = (a: Uint8Array, b: Uint8Array) => {
    const all = new Uint8Array(a.length + b.length);
    all.set(a);
    all.set(b, a.length);
    return all;
  };
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    let chunk = value;
    while (chunk.length) {
      if (!left) {
        const need = HEAD - head.length;
        head = joined(head, chunk.subarray(0, need));
        chunk = chunk.subarray(Math.min(need, chunk.length));
        if (head.length < HEAD) break;
        kind = head[0] ?? 0;
        left = new DataView(head.buffer).getUint32(1, true);
        head = new Uint8Array(0);
        told = [];
        if (!left) continue;
        if (!chunk.length) break;
      }
      const some = chunk.subarray(0, left);
      chunk = chunk.subarray(some.length);
      left -= some.length;
      if (kind === 0) yield { bytes: some };
      else {
        told.push(some.slice());
        if (!left) yield { part: parse(await new Blob(told as BlobPart[]).text()) as SendPart };
      }
    }
  }
}

function failed(part: SendPart): ApiError | undefined {
  return typeof part === "object" && "failed" in part
    ? new ApiError(part.failed.kind, part.failed.message, 0)
    : undefined;
}

/** How large streams would be. */
export async function estimate(request: object, signal: AbortSignal): Promise<number> {
  let bytes = 0;
  for await (const frame of frames({ ...request, dry_run: true, estimate: true }, signal)) {
    if (!("part" in frame)) continue;
    const wrong = failed(frame.part);
    if (wrong) throw wrong;
    if (typeof frame.part === "object" && "estimated" in frame.part) bytes += frame.part.estimated.bytes;
  }
  return bytes;
}

/** Streams that are larger are not held in memory. */
export const MOST_IN_MEMORY = 2 ** 30;

interface Picker {
  showSaveFilePicker?: (options: { suggestedName: string }) => Promise<FileSystemFileHandle>;
}
export const canStream = () => typeof (window as Picker).showSaveFilePicker === "function";

/** Saves a stream as a file. Large ones go to the disk as they come, where the browser can do so. */
export async function save(
  request: object,
  name: string,
  size: number,
  progress: (bytes: number) => void,
  signal: AbortSignal,
): Promise<{ bytes: number; warnings: string[]; partial: boolean }> {
  const large = size > 64 * 2 ** 20;
  const handle =
    large && canStream()
      ? await (window as unknown as Required<Picker>).showSaveFilePicker({ suggestedName: name })
      : undefined;
  const file = await handle?.createWritable();
  const parts: BlobPart[] = [];
  const warnings: string[] = [];
  let bytes = 0;
  let complete: { is_partial: boolean } | undefined;
  try {
    for await (const frame of frames(request, signal)) {
      if ("bytes" in frame) {
        bytes += frame.bytes.length;
        if (file) await file.write(frame.bytes as BufferSource as FileSystemWriteChunkType);
        else {
          if (bytes > MOST_IN_MEMORY) throw new ApiError("too-large", "", 0);
          parts.push(frame.bytes.slice() as BlobPart);
        }
        progress(bytes);
        continue;
      }
      const wrong = failed(frame.part);
      if (wrong) throw wrong;
      if (typeof frame.part !== "object") continue;
      if ("warning" in frame.part) warnings.push(frame.part.warning);
      if ("complete" in frame.part) complete = frame.part.complete;
    }
    if (!complete) throw new ApiError("connection", "", 0);
    await file?.close();
  } catch (error) {
    await file?.abort().catch(() => undefined);
    throw error;
  }
  if (!file) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob(parts));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
  }
  return { bytes, warnings, partial: complete.is_partial };
}

/** Gives a file to `receive-stream`. Of fetch the browser tells no progress, so that this is an older request. */
export function receive(
  request: object,
  file: Blob,
  progress: (bytes: number) => void,
  signal: AbortSignal,
): Promise<{ told: string[]; warnings: string[] }> {
  return new Promise((done, fail) => {
    const asked = new XMLHttpRequest();
    asked.open("POST", "/v1/receive-stream");
    asked.setRequestHeader("x-cenote-csrf", csrfToken());
    asked.setRequestHeader("content-type", "application/octet-stream");
    asked.upload.onprogress = (e) => progress(e.loaded);
    asked.onerror = () => fail(new ApiError("connection", "", 0));
    asked.onabort = () => fail(new DOMException("", "AbortError"));
    asked.onload = () => {
      const told: string[] = [];
      const warnings: string[] = [];
      let whole = false;
      try {
        const lines = asked.responseText.split("\n").filter((l) => l.trim());
        if (asked.status !== 200) {
          const said = parse(lines[0] ?? "{}") as { kind?: string; message?: string };
          fail(new ApiError(said.kind ?? "failed", said.message ?? String(asked.status), asked.status));
          return;
        }
        for (const line of lines) {
          const part = parse(line) as Schemas["ReceivePart"];
          if (part === "complete") whole = true;
          else if ("told" in part) told.push(part.told);
          else if ("warning" in part) warnings.push(part.warning);
          else if ("failed" in part) {
            fail(new ApiError(part.failed.kind, part.failed.message, 0));
            return;
          }
        }
      } catch (error) {
        fail(new ApiError("failed", String(error), 0));
        return;
      }
      if (whole) done({ told, warnings });
      else fail(new ApiError("connection", "", 0));
    };
    signal.addEventListener("abort", () => asked.abort());
    asked.send(new Blob([`${JSON.stringify(request)}\n`, file]));
  });
}
