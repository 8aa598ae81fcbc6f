// The protocol of a command inside an instance, as internal/execstream has it: one byte of type, four bytes of length (big
// endian), the payload. A WebSocket's messages carry the bytes; frames need not end where messages do.

export const Frame = { Stdin: 0, Stdout: 1, Stderr: 2, Resize: 3, Exit: 4, StdinEOF: 5 } as const;

/** maxFrame is the largest payload in bytes. */
export const maxFrame = 64 << 10;

export interface Result {
  code: number;
  error?: string;
  hint?: string;
}

export function frame(type: number, payload: Uint8Array): Uint8Array<ArrayBuffer> {
  const out = new Uint8Array(5 + payload.length);
  out[0] = type;
  new DataView(out.buffer).setUint32(1, payload.length);
  out.set(payload, 5);
  return out;
}

/** Frames puts frames together again from the bytes as they come. */
export class Frames {
  private rest = new Uint8Array(0);

  *take(part: Uint8Array): Generator<[number, Uint8Array]> {
    const all = new Uint8Array(this.rest.length + part.length);
    all.set(this.rest);
    all.set(part, this.rest.length);
    const view = new DataView(all.buffer);
    let at = 0;
    while (all.length - at >= 5) {
      const size = view.getUint32(at + 1);
      if (size > maxFrame) throw new Error("a frame of " + size + " bytes");
      if (all.length - at - 5 < size) break;
      yield [all[at]!, all.subarray(at + 5, at + 5 + size)];
      at += 5 + size;
    }
    this.rest = all.slice(at);
  }
}

export interface ExecEnds {
  onOutput(data: Uint8Array): void;
  /** onEnd tells how the command ended; without a result the connection was lost. */
  onEnd(r?: Result): void;
}

/** Exec is a command with a terminal inside an instance. */
export class Exec {
  private ws: WebSocket;
  private ended = false;

  constructor(id: string, command: string[], token: string, ends: ExecEnds, container?: string) {
    const q = new URLSearchParams({ tty: "true", stdin: "true" });
    for (const c of command) q.append("command", c);
    if (container) q.set("container", container);
    q.append("env", "TERM=xterm-256color");
    const at = new URL(`/v1/instances/${encodeURIComponent(id)}/exec?${q}`, location.href);
    at.protocol = at.protocol === "https:" ? "wss:" : "ws:";
    this.ws = new WebSocket(at, ["skerry-exec.1", "bearer." + token]);
    this.ws.binaryType = "arraybuffer";
    const frames = new Frames();
    this.ws.onmessage = (m) => {
      for (const [type, data] of frames.take(new Uint8Array(m.data as ArrayBuffer))) {
        if (type === Frame.Stdout || type === Frame.Stderr) ends.onOutput(data.slice());
        else if (type === Frame.Exit) {
          this.ended = true;
          ends.onEnd(JSON.parse(new TextDecoder().decode(data)) as Result);
        }
      }
    };
    this.ws.onclose = () => {
      if (!this.ended) ends.onEnd();
      this.ended = true;
    };
  }

  input(text: string) {
    this.send(Frame.Stdin, new TextEncoder().encode(text));
  }

  resize(rows: number, cols: number) {
    this.send(Frame.Resize, new TextEncoder().encode(JSON.stringify({ rows, cols })));
  }

  close() {
    this.ended = true;
    this.ws.close();
  }

  private send(type: number, data: Uint8Array) {
    const put = () => {
      for (let at = 0; at < data.length || at === 0; at += maxFrame)
        this.ws.send(frame(type, data.subarray(at, at + maxFrame)));
    };
    if (this.ws.readyState === WebSocket.OPEN) put();
    else if (this.ws.readyState === WebSocket.CONNECTING) this.ws.addEventListener("open", put, { once: true });
  }
}
