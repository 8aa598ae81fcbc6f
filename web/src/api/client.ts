import type { components } from "./schema";
import type { FieldProblem, Problem } from "./types";

/** ApiError is a refusal of the server in its own words, or the reason why it cannot be reached (status 0). */
export class ApiError extends Error {
  readonly status: number;
  readonly code: string;
  readonly hint?: string;
  readonly problems: FieldProblem[];

  constructor(status: number, p: Partial<Problem>) {
    super(p.detail || p.title || "the server answered with status " + status);
    this.name = "ApiError";
    this.status = status;
    this.code = p.code ?? "";
    this.hint = p.hint;
    this.problems = p.problems ?? [];
  }
}

/** needsCode tells whether a login was refused for want of a one-time code. */
export function needsCode(e: unknown): boolean {
  return e instanceof ApiError && e.problems.some((p) => p.path === "otp");
}

/** aboutError gives what to show of any error. */
export function aboutError(e: unknown): { text: string; hint?: string; problems: FieldProblem[] } {
  if (e instanceof ApiError) return { text: e.message, hint: e.hint, problems: e.problems };
  return { text: e instanceof Error ? e.message : String(e), problems: [] };
}

export interface Tokens {
  access: string;
  expires: string;
  user: string;
}

export interface Call {
  query?: Record<string, string | number | boolean | undefined>;
  /** body is sent as JSON, a string as it is with the given type. */
  body?: unknown;
  type?: string;
  accept?: string;
  signal?: AbortSignal;
}

/** mark remembers that this browser has had a session, and nothing of it: without one, none is looked for. */
const mark = "skerry-session";

/** early is how long before its end an access token is renewed, in milliseconds. */
const early = 30_000;

/**
 * Client speaks the public API for one page. The access token lives in its memory alone; the refresh token in a cookie that
 * no script can read.
 */
export class Client {
  private access = "";
  private expires = 0;
  private refreshing: Promise<void> | null = null;
  /** onLogout is told when the session has ended, so that a login can be asked for. */
  onLogout: () => void = () => {};

  constructor(private readonly base = "") {}

  get loggedIn() {
    return this.access !== "";
  }

  async login(user: string, password: string, otp?: string) {
    this.keep(await this.send<Tokens>("POST", "/v1/auth/login", { body: { user, password, otp, cookie: true } }));
  }

  /** offersProvider tells whether one can log in at an identity provider here. */
  async offersProvider(): Promise<boolean> {
    return (await this.send<components["schemas"]["Version"]>("GET", "/v1/version", {})).oidc ?? false;
  }

  /** beginAtProvider gives the page to go to; this browser comes back with a session. */
  async beginAtProvider(): Promise<string> {
    const begun = await this.send<components["schemas"]["OIDCBegun"]>("POST", "/v1/auth/oidc", { body: {} });
    localStorage.setItem(mark, "1");
    return begun.url;
  }

  /** resume goes on with the session of the cookie, if there is one. */
  async resume(): Promise<boolean> {
    if (!localStorage.getItem(mark)) return false;
    try {
      await this.refresh();
      return true;
    } catch (e) {
      if (e instanceof ApiError && e.status >= 400 && e.status < 500 && e.status !== 429) return false;
      throw e;
    }
  }

  async logout() {
    try {
      await this.call("POST", "/v1/auth/logout");
    } finally {
      this.access = "";
      localStorage.removeItem(mark);
    }
  }

  /** token gives an access token that is good for a while yet. */
  async token(): Promise<string> {
    if (!this.access || Date.now() > this.expires - early) await this.refresh();
    return this.access;
  }

  /** call asks for JSON; undefined where the answer has no body. */
  async call<T = void>(method: string, path: string, c: Call = {}): Promise<T> {
    const res = await this.open(method, path, c);
    if (res.status === 204 || (res.status === 202 && res.headers.get("Content-Length") === "0")) return undefined as T;
    const text = await res.text();
    return (text ? JSON.parse(text) : undefined) as T;
  }

  /** open asks for anything and gives the answer, whose body may be read as it comes. */
  async open(method: string, path: string, c: Call = {}): Promise<Response> {
    const token = await this.token();
    try {
      return await this.fetch(method, path, c, token);
    } catch (e) {
      if (!(e instanceof ApiError) || e.status !== 401) throw e;
      await this.refresh(); // it may have been taken back, or the clocks differ
      return this.fetch(method, path, c, this.access);
    }
  }

  private keep(t: Tokens) {
    this.access = t.access;
    this.expires = Date.parse(t.expires);
    localStorage.setItem(mark, "1");
  }

  private refresh(): Promise<void> {
    this.refreshing ??= this.exclusively(async () => {
      try {
        this.keep(await this.send<Tokens>("POST", "/v1/auth/refresh", { body: {} }));
      } catch (e) {
        if (e instanceof ApiError && (e.status === 401 || e.status === 422 || e.status === 400)) {
          const was = this.access !== "";
          this.access = "";
          localStorage.removeItem(mark);
          if (was) this.onLogout();
        }
        throw e;
      }
    }).finally(() => (this.refreshing = null));
    return this.refreshing;
  }

  /** exclusively keeps two tabs from using one refresh token: each is good once. */
  private async exclusively(fn: () => Promise<void>): Promise<void> {
    if (!navigator.locks) return fn();
    await navigator.locks.request("skerry-refresh", fn);
  }

  private async send<T>(method: string, path: string, c: Call): Promise<T> {
    return (await (await this.fetch(method, path, c, "")).json()) as T;
  }

  private async fetch(method: string, path: string, c: Call, token: string): Promise<Response> {
    const query = new URLSearchParams();
    for (const [k, v] of Object.entries(c.query ?? {})) if (v !== undefined && v !== "") query.set(k, String(v));
    const headers: Record<string, string> = { Accept: c.accept ?? "application/json" };
    if (token) headers.Authorization = "Bearer " + token;
    let body: string | undefined;
    if (c.body !== undefined) {
      body = typeof c.body === "string" ? c.body : JSON.stringify(c.body);
      headers["Content-Type"] = c.type ?? "application/json";
    }
    let res: Response;
    try {
      res = await fetch(this.base + path + (query.size ? "?" + query : ""), {
        method,
        headers,
        body,
        signal: c.signal,
        credentials: "same-origin",
        cache: "no-store",
      });
    } catch (e) {
      if (c.signal?.aborted) throw e;
      throw new ApiError(0, {
        code: "Unreachable",
        detail: "the server cannot be reached",
        hint: "what you have entered is kept; it is tried again",
      });
    }
    if (res.ok) return res;
    let p: Partial<Problem> = {};
    try {
      const said = (await res.json()) as Problem & { errors?: { code: string; message: string }[] };
      p = said;
      const registry = path.startsWith("/v2/") ? said.errors?.[0] : undefined; // it has a form of its own
      if (registry) p = { code: registry.code, detail: registry.message };
    } catch {
      // a proxy's answer
    }
    throw new ApiError(res.status, p);
  }
}
