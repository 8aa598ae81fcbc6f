import { Button, Checkbox, Group, Modal, NumberInput, Select, Stack, Text, TextInput } from "@mantine/core";
import { useState } from "react";
import { useNavigate } from "react-router-dom";
import type { ClusterView, List, WorkerView } from "../api/types";
import { useGet } from "../state/query";
import { useSession } from "../state/session";
import { useActs } from "./basics";

/** Member is a worker of a site, or a cluster of the root. */
type Member = Pick<WorkerView, "name" | "connected" | "hold" | "credit" | "claims"> & {
  drain?: WorkerView["drain"] | ClusterView["drain"];
};
type Kind = "worker" | "cluster";

/** offered tells what an operator can do with a worker or cluster as it stands. */
export function offered(w: Omit<Member, "name">): {
  drain: boolean;
  hold: boolean;
  release: string;
  remove: boolean;
} {
  const distrusted = Boolean(w.credit?.quarantine || w.claims);
  let release = "";
  if (w.drain) release = "End the drain";
  else if (w.hold) release = "Uncordon";
  else if (distrusted) release = "Trust again";
  return { drain: !w.drain, hold: !w.hold && !w.drain, release, remove: !w.connected };
}

const removal: Record<Kind, string> = {
  worker:
    "The cluster removes the worker and revokes its key: it needs a new token to join again. Its instances are started elsewhere.",
  cluster:
    "The root removes the cluster and revokes its key: it needs a new token to join again. Its instances are started elsewhere.",
};

/** MemberActions are what an operator can do with a worker, or of the root with a cluster. */
export function MemberActions({ of, w, path, reload }: { of: Kind; w: Member; path: string; reload: () => void }) {
  const { client } = useSession();
  const { ask } = useActs();
  const go = useNavigate();
  const [form, setForm] = useState<"drain" | "hold" | null>(null);
  const can = offered(of === "worker" ? w : { ...w, credit: undefined }); // a cluster is trusted again where its trust is shown
  return (
    <>
      {can.release && (
        <Button
          onClick={() =>
            ask({
              title: `${can.release}: ${w.name}?`,
              text: `The ${of} gets new instances again. This ends a cordon, a drain and a quarantine, and its claims are trusted again.`,
              action: can.release,
              run: async () => {
                await client.call("PUT", path + "/hold", { body: { reason: "" } });
                reload();
              },
              done: `${w.name} is uncordoned`,
            })
          }
        >
          {can.release}
        </Button>
      )}
      {can.hold && (
        <Button variant="default" onClick={() => setForm("hold")}>
          Cordon
        </Button>
      )}
      {can.drain && (
        <Button variant="default" onClick={() => setForm("drain")}>
          Drain
        </Button>
      )}
      {can.remove && (
        <Button
          color="red"
          variant="outline"
          onClick={() =>
            ask({
              title: `Remove ${w.name}?`,
              text: removal[of],
              action: "Remove",
              danger: true,
              run: async () => {
                await client.call("DELETE", path);
                go(`/${of}s`);
              },
              done: `${w.name} is removed`,
            })
          }
        >
          Remove
        </Button>
      )}
      <Modal
        opened={form === "hold"}
        onClose={() => setForm(null)}
        title={`Cordon ${w.name}`}
        centered
        closeButtonProps={{ "aria-label": "Close" }}
      >
        <Hold of={of} w={w} path={path} done={() => (setForm(null), reload())} />
      </Modal>
      <Modal
        opened={form === "drain"}
        onClose={() => setForm(null)}
        title={`Drain ${w.name}`}
        centered
        closeButtonProps={{ "aria-label": "Close" }}
      >
        <Drain of={of} w={w} path={path} done={() => (setForm(null), reload())} />
      </Modal>
    </>
  );
}

interface FormProps {
  of: Kind;
  w: Member;
  path: string;
  done: () => void;
}

function Hold({ of, w, path, done }: FormProps) {
  const { client } = useSession();
  const { act } = useActs();
  const [reason, setReason] = useState("");
  return (
    <form
      onSubmit={async (e) => {
        e.preventDefault();
        if (await act(() => client.call("PUT", path + "/hold", { body: { reason } }), `${w.name} is cordoned`)) done();
      }}
    >
      <Stack>
        <Text size="sm">
          {of === "worker"
            ? "New work is kept away; what runs there stays."
            : "The root places nothing new there; what runs there stays. The cluster’s own applications are its own."}
        </Text>
        <TextInput
          label="Why"
          description="Shown to others."
          required
          maxLength={200}
          value={reason}
          onChange={(e) => setReason(e.currentTarget.value)}
          data-autofocus
        />
        <Group justify="flex-end">
          <Button type="submit" disabled={!reason.trim()}>
            Cordon
          </Button>
        </Group>
      </Stack>
    </form>
  );
}

function Drain({ of, w, path, done }: FormProps) {
  const { client } = useSession();
  const { act } = useActs();
  const others = useGet<List<WorkerView>>(of === "worker" ? "/v1/workers" : null);
  const [reason, setReason] = useState("");
  const [parallel, setParallel] = useState<number | string>(1);
  const [to, setTo] = useState<string | null>(null);
  const [force, setForce] = useState(false);
  return (
    <form
      onSubmit={async (e) => {
        e.preventDefault();
        const body = {
          reason: reason || undefined,
          parallel: Number(parallel) || 1,
          to: to ?? undefined,
          force: force || undefined,
        };
        if (await act(() => client.call("PUT", path + "/drain", { body }), `${w.name} is being drained`)) done();
      }}
    >
      <Stack>
        <Text size="sm">
          New work is kept away, and everything that can leave does, each instance once its copy elsewhere is ready.
          {of === "cluster" && " The cluster’s own applications stay."}
        </Text>
        <TextInput
          label="Why"
          maxLength={200}
          value={reason}
          onChange={(e) => setReason(e.currentTarget.value)}
          data-autofocus
        />
        <NumberInput
          label="Instances at once"
          min={1}
          max={100}
          allowDecimal={false}
          value={parallel}
          onChange={setParallel}
        />
        {of === "worker" && (
          <>
            <Select
              label="Preferred worker"
              placeholder="Best available"
              clearable
              clearButtonProps={{ "aria-label": "Best available" }}
              data={(others.data?.items ?? []).map((o) => o.name).filter((n) => n !== w.name)}
              value={to}
              onChange={setTo}
            />
            <Checkbox
              label="Also move instances that keep data on the worker; the data is lost"
              checked={force}
              onChange={(e) => setForce(e.currentTarget.checked)}
            />
          </>
        )}
        <Group justify="flex-end">
          <Button type="submit" color={force ? "red" : undefined}>
            Drain
          </Button>
        </Group>
      </Stack>
    </form>
  );
}
