import { createContext, type ReactNode, useCallback, useContext, useEffect, useMemo, useState } from "react";
import { ApiError, aboutError, Client } from "../api/client";
import type { Who } from "../api/types";
import { forgetWatches } from "./watch";

export interface Session {
  client: Client;
  who: Who | null;
  /** phase is begin while the cookie's session is tried, out when a login is needed, again when one is needed to go on. */
  phase: "begin" | "out" | "in" | "again";
  login(user: string, password: string, otp?: string): Promise<void>;
  logout(): Promise<void>;
  /** can tells whether the user has a scope somewhere; the server decides about each thing. */
  can(scope: string): boolean;
  error?: string;
}

const Context = createContext<Session | null>(null);

export function useSession(): Session {
  const s = useContext(Context);
  if (!s) throw new Error("there is no session around this");
  return s;
}

/** SessionProvider holds the login. When a session ends while somebody works, the page stays as it is until they are back. */
export function SessionProvider({ children, client: given }: { children: ReactNode; client?: Client }) {
  const client = useMemo(() => given ?? new Client(), [given]);
  const [who, setWho] = useState<Who | null>(null);
  const [phase, setPhase] = useState<Session["phase"]>("begin");
  const [error, setError] = useState<string>();

  const enter = useCallback(async () => {
    const w = await client.call<Who>("GET", "/v1/auth/whoami");
    setWho((old) => {
      if (old && old.user !== w.user) forgetWatches();
      return w;
    });
    setPhase("in");
  }, [client]);

  useEffect(() => {
    let gone = false;
    client.onLogout = () => setPhase((p) => (p === "in" ? "again" : p));
    const begin = async () => {
      for (let wait = 1000; !gone; wait = Math.min(wait * 2, 15_000)) {
        try {
          if (await client.resume()) await enter();
          else setPhase("out");
          setError(undefined);
          return;
        } catch (e) {
          setError(aboutError(e).text);
          await new Promise((done) => setTimeout(done, wait));
        }
      }
    };
    void begin();
    return () => {
      gone = true;
    };
  }, [client, enter]);

  const login = useCallback(
    async (user: string, password: string, otp?: string) => {
      await client.login(user, password, otp);
      setError(undefined);
      await enter();
    },
    [client, enter],
  );
  const logout = useCallback(async () => {
    try {
      await client.logout();
      setError(undefined);
    } catch (e) {
      if (!(e instanceof ApiError && e.status === 401))
        // else it had ended
        setError(`You are logged out in this browser, and the session goes on at the server: ${aboutError(e).text}`);
    } finally {
      forgetWatches();
      setWho(null);
      setPhase("out");
    }
  }, [client]);
  const can = useCallback((scope: string) => who?.scopes?.includes(scope) ?? false, [who]);

  const value = useMemo(
    () => ({ client, who, phase, login, logout, can, error }),
    [client, who, phase, login, logout, can, error],
  );
  return <Context.Provider value={value}>{children}</Context.Provider>;
}
