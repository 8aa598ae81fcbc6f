import { useCallback, useEffect, useRef, useState } from "react";
import { ApiError, type Call } from "../api/client";
import { useSession } from "./session";

/** soon is how long to wait before a request that did not reach the server is sent again, in milliseconds. */
export const soon = 2000;

/** unreachable says whether a request got no answer at all, so that the same one may succeed later. */
export const unreachable = (e: unknown) => e instanceof ApiError && e.status === 0;

export interface Query<T> {
  data?: T;
  error?: unknown;
  loading: boolean;
  reload(): void;
}

/**
 * useGet reads something and reads it again every so many seconds (0: once it was answered, never), as long as the tab is
 * seen. What was read last stays while the server cannot be reached.
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
      let answered = false;
      if (!document.hidden) {
        answered = true;
        try {
          const data = await client.call<T>("GET", path, {
            query: asked ? (JSON.parse(asked) as Call["query"]) : undefined,
            signal: stop.signal,
          });
          setState({ path, data, loading: false });
        } catch (error) {
          if (stop.signal.aborted) return;
          answered = !unreachable(error);
          setState((s) => ({ ...s, error, loading: false }));
        }
      }
      if (stop.signal.aborted) return;
      if (every > 0) timer = setTimeout(read, every * 1000);
      else if (!answered) timer = setTimeout(read, soon);
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
