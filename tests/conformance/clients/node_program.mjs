// @kubernetes/client-node: writes on a member, watches what it wrote, and runs a command.
import assert from "node:assert";
import { createRequire } from "node:module";
import { PassThrough } from "node:stream";
import { pathToFileURL } from "node:url";

const found = createRequire(`${process.env.CLUSTERSPACE_CLIENTS_NODE_MODULES}/`).resolve("@kubernetes/client-node");
const k8s = await import(pathToFileURL(found));

const name = `${process.argv[2]}.clusterspace.east`;
const namespace = "default";
const config = new k8s.KubeConfig();
config.loadFromDefault();
const core = config.makeApiClient(k8s.CoreV1Api);

const before = await core.listNamespacedConfigMap({ namespace });
await core.createNamespacedConfigMap({ namespace, body: { metadata: { name }, data: { step: "made" } } });
const seen = [];
await new Promise((resolve, reject) => {
  const path = `/api/v1/namespaces/${namespace}/configmaps`;
  new k8s.Watch(config)
    .watch(path, { resourceVersion: before.metadata.resourceVersion }, (kind, object) => {
      if (object.metadata.name === name) seen.push([kind, object.data.step]);
      if (seen.length) resolve();
    }, (error) => error && !seen.length && reject(error))
    .catch(reject);
});
assert.deepEqual(seen, [["ADDED", "made"]]);

const current = await core.readNamespacedConfigMap({ namespace, name });
current.data.step = "replaced";
await core.replaceNamespacedConfigMap({ namespace, name, body: current });

const output = new PassThrough();
let said = "";
output.on("data", (piece) => { said += piece; });
await new Promise((resolve, reject) => {
  new k8s.Exec(config)
    .exec(namespace, "p.clusterspace.east", "c", ["hostname"], output, null, null, false, resolve)
    .catch(reject);
});
assert.equal(said.trim(), "p");
process.exit(0);
