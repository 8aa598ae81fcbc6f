import { useCallback, useEffect, useRef, useState } from "react";
import type { Call } from "../api/client";
import { useSession } from "./session";

export interface Query<T> {
  data?: T;
  error?: unknown;
  loading: boolean;
  reload(): void;
}

/**
 * useGet reads something and reads it again every so many seconds (0: never), as long as the tab is seen. What was read
 * last stays while the server cannot be reached.
 */
export function useGet<T>(path: string | null, every = 0, query?: Call["query"]): Query<T> {
  const { client, phase } = useSession();
  const [state, setState] = useState<{ path: string | null; data?: T; error?: unknown; loading: boolean }>({
    path,
    loading: path !== null,
  });
  const [round, setRound] = useState(0);
  const asked = JSON.stringify(query);
  const key = useRef("");
  useEffect(() => {
    if (path === null || phase !== "in") return;
    const stop = new AbortController();
    if (key.current !== path + asked) {
      key.current = path + asked;
      setState({ path, loading: true });
    }
    let timer: ReturnType<typeof setTimeout>;
    const read = async () => {
      if (!document.hidden) {
        try {
          const data = await client.call<T>("GET", path, {
            query: asked ? (JSON.parse(asked) as Call["query"]) : undefined,
            signal: stop.signal,
          });
          setState({ path, data, loading: false });
        } catch (error) {
          if (stop.signal.aborted) return;
          setState((s) => ({ ...s, error, loading: false }));
        }
      }
      if (every > 0 && !stop.signal.aborted) timer = setTimeout(read, every * 1000);
    };
    void read();
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, [client, phase, path, asked, every, round]);
  return {
    data: state.path === path ? state.data : undefined,
    error: state.error,
    loading: state.loading,
    reload: useCallback(() => setRound((n) => n + 1), []),
  };
}
