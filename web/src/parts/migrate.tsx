import { Button, Checkbox, Group, Modal, Select, Stack, Text, TextInput } from "@mantine/core";
import { useState } from "react";
import type { ClusterView, Instance, Migrating, WorkerView } from "../api/types";
import { useGet } from "../state/query";
import { useSession } from "../state/session";
import { Problem, useActs } from "./basics";

/** MigrateButton asks where an instance is to move: at a cluster to which worker, at the root to which cluster. */
export function MigrateButton({ i }: { i: Instance }) {
  const [open, setOpen] = useState(false);
  return (
    <>
      <Button variant="default" onClick={() => setOpen(true)}>
        Migrate
      </Button>
      <Modal
        opened={open}
        onClose={() => setOpen(false)}
        title={`Migrate ${i.id}`}
        centered
        closeButtonProps={{ "aria-label": "Close" }}
      >
        <Migrate i={i} onDone={() => setOpen(false)} />
      </Modal>
    </>
  );
}

function Migrate({ i, onDone }: { i: Instance; onDone: () => void }) {
  const { client, can, who } = useSession();
  const { say } = useActs();
  const root = who?.role === "root";
  const sees = can(root ? "clusters:read" : "workers:read");
  const places = useGet<{ items: (ClusterView | WorkerView)[] }>(sees ? (root ? "/v1/clusters" : "/v1/workers") : null);
  const [to, setTo] = useState<string | null>(null);
  const [reason, setReason] = useState("");
  const [force, setForce] = useState(false);
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>();
  const here = root ? i.cluster : i.worker;
  const names = (places.data?.items ?? []).map((p) => p.name).filter((n) => n !== here);
  return (
    <form
      onSubmit={async (e) => {
        e.preventDefault();
        setBusy(true);
        setError(undefined);
        try {
          const m = await client.call<Migrating>("POST", `/v1/instances/${encodeURIComponent(i.id)}/migrate`, {
            body: { ...(to && { to }), ...(reason && { reason }), ...(force && { force }) },
          });
          const where = m.copy
            ? `cluster ${m.cluster}, as ${m.copy}`
            : m.cluster
              ? `another worker of cluster ${m.cluster}`
              : `worker ${m.worker}`;
          say(`${i.id} moves to ${where}, once its copy there is ready`);
          onDone();
        } catch (x) {
          setError(x);
        }
        setBusy(false);
      }}
    >
      <Stack>
        <Text size="sm">
          A copy starts at the new place and takes over when it is ready. Until then the instance stays as it is.
        </Text>
        {sees && (
          <Select
            label={root ? "Cluster" : "Worker"}
            placeholder={root ? "Another worker of its cluster" : "The best other worker"}
            data={names}
            value={to}
            onChange={setTo}
            clearable
            clearButtonProps={{ "aria-label": "Choose none" }}
            searchable
            nothingFoundMessage="There is no other"
            error={places.error ? "They cannot be listed now." : undefined}
          />
        )}
        <TextInput
          label="Reason"
          description="Shown in the events."
          maxLength={200}
          value={reason}
          onChange={(e) => setReason(e.currentTarget.value)}
        />
        {!(root && to) && (
          <Checkbox
            label="Move it even if it keeps data on its worker; the data is lost"
            checked={force}
            onChange={(e) => setForce(e.currentTarget.checked)}
          />
        )}
        {error !== undefined && <Problem error={error} />}
        <Group justify="flex-end">
          <Button variant="default" onClick={onDone}>
            Cancel
          </Button>
          <Button type="submit" loading={busy} color={force && !(root && to) ? "red" : undefined}>
            Migrate
          </Button>
        </Group>
      </Stack>
    </form>
  );
}
