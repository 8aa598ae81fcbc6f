import { useSyncExternalStore } from "react";
import { ApiError, type Client } from "../api/client";
import { lines } from "../api/lines";
import type { AppKey, AppView, Event, Instance, WatchMessage } from "../api/types";

export const appID = (k: AppKey) => `${k.namespace}/${k.name}`;

export interface WatchQuery {
  kinds: ("app" | "instance" | "event")[];
  namespace?: string;
  app?: string;
}

export interface Fleet {
  apps: ReadonlyMap<string, AppView>;
  instances: ReadonlyMap<string, Instance>;
  /** events are the newest, the oldest of them first. */
  events: readonly Event[];
  /** past tells that the events of before the watch are there, or are not for this user. */
  past: boolean;
  /** synced tells that all there is has been told once. */
  synced: boolean;
  /** live is false while the connection is lost; what is shown is then of before. */
  live: boolean;
  error?: string;
}

const maxEvents = 500;
/** silence is how long nothing may come, in milliseconds; the server says every 15 s that it lives. */
const silence = 45_000;
/** unheard is how long a connection may take to say something, in milliseconds, before what is shown counts as of before. */
const unheard = 3_000;
/** together is for how long changes are gathered before the page hears of them, in milliseconds. */
const together = 100;

const none: Fleet = { apps: new Map(), instances: new Map(), events: [], past: false, synced: false, live: false };

/** Watch follows /v1/watch for as long as somebody listens. While the tab is hidden it rests, to spare server and link. */
export class Watch {
  private state: Fleet = none;
  private listeners = new Set<() => void>();
  private stop: AbortController | null = null;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private apps = new Map<string, AppView>();
  private instances = new Map<string, Instance>();
  private events: Event[] = [];
  private seq = -1;
  // What a listing has not told by its end is gone.
  /** endedAt is when the last listener left. */
  endedAt = 0;
  private pending: { apps: Set<string>; instances: Set<string> } | null = null;

  constructor(
    private readonly client: Client,
    private readonly query: WatchQuery,
  ) {}

  subscribe = (fn: () => void) => {
    this.listeners.add(fn);
    if (this.listeners.size === 1) this.begin();
    return () => {
      this.listeners.delete(fn);
      if (this.listeners.size === 0) this.end();
    };
  };

  snapshot = () => this.state;

  private visible = () => {
    if (document.hidden) {
      this.stop?.abort();
      this.stop = null;
    } else if (!this.stop) this.follow();
  };

  /** idle tells that nobody has listened for a minute: going back soon shows at once what was there. */
  get idle() {
    return this.listeners.size === 0 && Date.now() - this.endedAt > 60_000;
  }

  private begin() {
    document.addEventListener("visibilitychange", this.visible);
    if (this.query.kinds.includes("event")) this.earlier();
    this.follow();
  }

  private end() {
    this.endedAt = Date.now();
    document.removeEventListener("visibilitychange", this.visible);
    this.stop?.abort();
    this.stop = null;
  }

  private async earlier() {
    try {
      const { namespace, app } = this.query;
      const list = await this.client.call<{ items: Event[] }>("GET", "/v1/events", {
        query: { namespace, app, limit: 200 },
      });
      for (const e of list.items) this.event(e);
      this.tell({ past: true });
    } catch (e) {
      if (e instanceof ApiError && e.status === 403)
        this.tell({ past: true }); // without events:read there are none
      else setTimeout(() => this.listeners.size > 0 && void this.earlier(), 5_000);
    }
  }

  private async follow() {
    const stop = new AbortController();
    this.stop = stop;
    for (let wait = 500; !stop.signal.aborted; wait = Math.min(wait * 2, 15_000)) {
      try {
        await this.once(stop.signal, () => (wait = 500));
      } catch (e) {
        if (stop.signal.aborted) break;
        this.tell({ live: false, error: e instanceof ApiError ? e.message : "the connection to the server is lost" });
        if (e instanceof ApiError && (e.status === 401 || e.status === 403)) wait = 5_000;
      }
      await new Promise((done) => setTimeout(done, wait * (0.75 + Math.random() / 2)));
    }
  }

  private async once(outer: AbortSignal, alive: () => void) {
    const inner = new AbortController();
    const abort = () => inner.abort();
    outer.addEventListener("abort", abort);
    let guard = setTimeout(abort, silence);
    const slow = setTimeout(() => {
      if (this.state.live) this.tell({ live: false, error: "the server has not answered yet" });
    }, unheard);
    try {
      const { kinds, namespace, app } = this.query;
      const res = await this.client.open("GET", "/v1/watch", {
        query: { kinds: kinds.join(","), namespace, app },
        accept: "application/x-ndjson",
        signal: inner.signal,
      });
      this.listing();
      for await (const m of lines<WatchMessage>(res)) {
        clearTimeout(slow);
        clearTimeout(guard);
        guard = setTimeout(abort, silence);
        alive();
        this.take(m);
      }
      throw new Error("the server ended the connection");
    } finally {
      clearTimeout(slow);
      clearTimeout(guard);
      outer.removeEventListener("abort", abort);
    }
  }

  private listing() {
    this.pending = { apps: new Set(this.apps.keys()), instances: new Set(this.instances.keys()) };
  }

  take(m: WatchMessage) {
    switch (m.type) {
      case "set":
        if (m.app) {
          this.apps.set(appID(m.app.key), m.app);
          this.pending?.apps.delete(appID(m.app.key));
        } else if (m.instance) {
          this.instances.set(m.instance.id, m.instance);
          this.pending?.instances.delete(m.instance.id);
        } else if (m.event) this.event(m.event);
        break;
      case "deleted":
        if (m.key) this.apps.delete(appID(m.key));
        if (m.id) this.instances.delete(m.id);
        break;
      case "missed":
        this.listing();
        return;
      case "synced":
        for (const k of this.pending?.apps ?? []) this.apps.delete(k);
        for (const k of this.pending?.instances ?? []) this.instances.delete(k);
        this.pending = null;
        this.tell({ synced: true, live: true, error: undefined });
        return;
      case "beat":
        if (!this.state.live) this.tell({ live: true, error: undefined });
        return;
    }
    this.tell({});
  }

  private event(e: Event) {
    if (e.seq <= this.seq) {
      if (this.events.some((x) => x.seq === e.seq)) return;
      this.events = [...this.events, e].sort((a, b) => a.at.localeCompare(b.at) || a.seq - b.seq).slice(-maxEvents);
      return;
    }
    this.seq = e.seq;
    this.events = [...this.events.slice(1 - maxEvents), e];
  }

  private tell(change: Partial<Fleet>) {
    const flush = () => {
      this.timer = undefined;
      this.state = { ...this.state, apps: new Map(this.apps), instances: new Map(this.instances), events: this.events };
      for (const fn of this.listeners) fn();
    };
    this.state = { ...this.state, ...change };
    if ("live" in change || "synced" in change) {
      clearTimeout(this.timer);
      flush();
    } else this.timer ??= setTimeout(flush, together);
  }
}

const watches = new Map<string, Watch>();

/** useWatch follows what a query asks for; parts of a page that ask the same share one connection. */
export function useWatch(client: Client, q: WatchQuery): Fleet {
  const key = JSON.stringify(q);
  let w = watches.get(key);
  if (!w) {
    for (const [k, old] of watches) if (old.idle) watches.delete(k);
    w = new Watch(client, q);
    watches.set(key, w);
  }
  return useSyncExternalStore(w.subscribe, w.snapshot);
}

/** forgetWatches drops what was seen, as after a logout: another user may see less. */
export function forgetWatches() {
  watches.clear();
}
