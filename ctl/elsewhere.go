package ctl

// commandsElsewhere says what there is here for the commands of other orchestrators.
var commandsElsewhere = map[string]string{
	"attach":       "`skerry logs -f` follows the output of an instance; `skerry exec -it` runs a command beside it",
	"autoscale":    "`scale` in the manifest makes the number of instances follow their load: `skerry explain spec.services.scale`",
	"cluster-info": "`skerry whoami` shows the server, `skerry get clusters` the sites",
	"compose":      "`skerry apply compose.yaml` takes a Compose file; `skerry convert` shows what becomes of it",
	"config":       "`skerry context` manages the servers that you use",
	"create":       "`skerry run NAME --image IMAGE` makes an application, `skerry apply FILE` applies its manifest",
	"down":         "`skerry delete app NAME`, or `skerry delete -f FILE`",
	"expose":       "a service has its address from the start; `export` and `ingress` open it: `skerry explain spec.services.ingress`",
	"inspect":      "`skerry describe KIND NAME`, or `skerry get KIND NAME -o yaml`",
	"job":          "`skerry get apps` lists the applications",
	"kill":         "`skerry delete instance NAME` ends an instance; its service places a new one",
	"list":         "`skerry get KIND`, such as `skerry get apps`",
	"ls":           "`skerry get KIND`, such as `skerry get apps`",
	"node":         "`skerry get workers` lists the machines, `skerry drain` and `skerry cordon` take them out of use",
	"patch":        "`skerry edit APP` or `skerry set`",
	"ps":           "`skerry get instances`",
	"pull":         "`skerry image pull`",
	"push":         "`skerry image push`",
	"replace":      "`skerry apply FILE`",
	"start":        "`skerry scale APP/SERVICE N`; a registered application starts with `skerry deploy`",
	"stats":        "`skerry top`",
	"status":       "`skerry get apps`, `skerry get instances`, `skerry root status` or `skerry cluster status`",
	"stop":         "`skerry scale APP/SERVICE 0`",
	"taint":        "labels and `placement` say who may run where; `skerry cordon` takes a worker out of use",
	"update":       "`skerry apply FILE`, `skerry set` or `skerry edit`",
}

// kindsElsewhere says what there is here for the kinds of other orchestrators.
var kindsElsewhere = map[string]string{
	"pod": podsAre, "pods": podsAre, "po": podsAre, "container": podsAre, "containers": podsAre,
	"alloc": podsAre, "allocs": podsAre, "tasks": podsAre,
	"node": nodesAre, "nodes": nodesAre, "no": nodesAre, "machine": nodesAre, "machines": nodesAre, "site": sitesAre, "sites": sitesAre,
	"deployment": appsAre, "deployments": appsAre, "deploy": appsAre, "statefulset": appsAre, "statefulsets": appsAre, "sts": appsAre,
	"daemonset": appsAre, "daemonsets": appsAre, "ds": appsAre, "replicaset": appsAre, "replicasets": appsAre, "rs": appsAre,
	"job": appsAre, "jobs": appsAre, "cronjob": appsAre, "cronjobs": appsAre, "stack": appsAre, "stacks": appsAre, "all": appsAre,
	"pvc": volumesAre, "persistentvolumeclaim": volumesAre, "persistentvolumeclaims": volumesAre, "pv": volumesAre,
	"configmap": configIs, "configmaps": configIs, "cm": configIs,
	"endpoints": "`skerry get instances -o wide` shows the addresses of instances",
}

const (
	podsAre    = "an instance is what runs: `skerry get instances`"
	nodesAre   = "a machine is a worker: `skerry get workers`"
	sitesAre   = "a site is a cluster: `skerry get clusters`"
	appsAre    = "an application has services, each with its mode: `skerry get apps` and `skerry get services`"
	volumesAre = "`skerry get volumes` lists the volumes"
	configIs   = "files of configuration are part of a service: `skerry explain spec.services.config`"
)
