"""Type inference on abstract syntax trees with a gated graph neural network: python ast_types.py [STEPS]"""
import csv, dataclasses, functools, gzip, json, os, pickle, queue, random, sys, tempfile, threading, time, zlib
from typing import Any, NamedTuple
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import optax

TYPES = ["int", "float", "str", "bool", "list[int]", "list[str]"]
GRAMMAR = {
    "int": [("Add", ["int", "int"]), ("Len", ["list[str]"]), ("Index", ["list[int]", "int"]), ("Find", ["str", "str"])],
    "float": [("Mul", ["float", "int"]), ("Div", ["int", "int"]), ("Add", ["float", "float"])],
    "str": [("Add", ["str", "str"]), ("ToStr", ["int"]), ("Index", ["list[str]", "int"]), ("Mul", ["str", "int"])],
    "bool": [("Less", ["int", "float"]), ("In", ["str", "list[str]"]), ("Not", ["bool"])],
    "list[int]": [("Add", ["list[int]", "list[int]"]), ("Sorted", ["list[int]"]), ("Range", ["int"])],
    "list[str]": [("Split", ["str"]), ("Sorted", ["list[str]"]), ("Add", ["list[str]", "list[str]"])],
}
LITERALS = {"int": "Int", "float": "Float", "str": "Str", "bool": "Bool", "list[int]": "List", "list[str]": "List"}
KINDS = ["Pad", "Function", "Param", "Assign", "Return", "Name"] + sorted(
    {kind for rules in GRAMMAR.values() for kind, _ in rules} | set(LITERALS.values()))
KIND_ID = {kind: i for i, kind in enumerate(KINDS)}
STEMS = "user file row page cache order item node path token image price job group event query model batch".split()
HINTS = {"int": ["count", "index", "size"], "float": ["ratio", "mean", "weight"], "str": ["name", "text", "label"],
         "bool": ["is", "has", "done"], "list[int]": ["ids", "sizes", "offsets"], "list[str]": ["names", "words", "lines"]}
MAX_NODES, NUM_SUBTOKENS, NUM_BUCKETS = 64, 3, 20_000
NUM_VECTORS, VECTOR_DIM = 400_000, 128
KIND, PARENT, SIBLING, LAST_USE, LABEL, WORD, SUBTOKEN = range(7)  # columns of an encoded tree

@dataclasses.dataclass
class Config:
  steps: int = 1500
  batch_size: int = 24
  eval_batch_size: int = 64
  hidden: int = 48
  rounds: int = 4
  peak_lr: float = 2e-3
  repositories: int = 208
  held_out: int = 16
  log_every: int = 25
  eval_every: int = 300
  warmup: int = 8

def write_function(rand):  # nodes are [kind, parent, identifier, type]
  nodes, scope = [["Function", -1, rand.choice(STEMS), None]], {}
  def add(kind, parent, name="", typ=None):
    nodes.append([kind, parent, name, typ])
    return len(nodes) - 1
  def fresh(typ):
    tail = rand.choice(HINTS[typ] if rand.random() < 0.6 else STEMS)
    return f"{rand.choice(STEMS)}_{tail}_{rand.randrange(40)}"
  def expression(typ, parent, depth):
    known = [name for name, t in scope.items() if t == typ]
    if known and rand.random() < 0.5:
      add("Name", parent, rand.choice(known), typ)
    elif depth == 0 or rand.random() < 0.25:
      literal = add(LITERALS[typ], parent, "", typ)
      for _ in range(rand.randint(0, 2) if typ.startswith("list") else 0):
        add(LITERALS[typ[5:-1]], literal, "", typ[5:-1])
    else:
      kind, children = rand.choice(GRAMMAR[typ])
      node = add(kind, parent, "", typ)
      for child in children:
        expression(child, node, depth - 1)
  for typ in rand.choices(TYPES, k=rand.randint(1, 4)):
    name = fresh(typ)
    scope[name] = typ
    add("Param", 0, name, typ)
  budget = rand.randint(44, 60)
  while len(nodes) < budget:
    typ, statement = rand.choice(TYPES), add("Assign", 0)
    name = fresh(typ)
    add("Name", statement, name, typ)
    expression(typ, statement, 2)
    scope[name] = typ
  expression(rand.choice(TYPES), add("Return", 0), 1)
  return nodes[:MAX_NODES]

def write_corpus(folder, repositories, functions=12):
  rand, paths = random.Random(17), []
  for i in range(repositories):
    paths.append(os.path.join(folder, f"repo{i:04d}.json.gz"))
    with gzip.open(paths[-1], "wt", compresslevel=1) as f:
      f.write(json.dumps([write_function(rand) for _ in range(functions)]))
  return paths

def encode(nodes):
  tree = np.zeros((MAX_NODES, SUBTOKEN + NUM_SUBTOKENS), np.int32)
  tree[:, PARENT:WORD] = -1
  last_child, last_use = {}, {}
  for i, (kind, parent, name, typ) in enumerate(nodes):
    row = tree[i]
    row[KIND], row[PARENT], row[SIBLING] = KIND_ID[kind], parent, last_child.get(parent, -1)
    last_child[parent] = i
    if typ is not None:
      row[LABEL] = TYPES.index(typ)
    if name:
      row[LAST_USE] = last_use.get(name, -1)
      last_use[name] = i
      row[WORD] = 1 + zlib.crc32(name.encode()) % (NUM_VECTORS - 1)
      for j, part in enumerate(name.split("_")[:NUM_SUBTOKENS]):
        row[SUBTOKEN + j] = 1 + zlib.crc32(part.encode()) % (NUM_BUCKETS - 1)
  return tree

@functools.lru_cache(maxsize=None)
def load_repository(path):
  with gzip.open(path, "rt") as f:
    return [encode(nodes) for nodes in json.load(f)]

class Loader:
  def __init__(self, paths, batch_size):
    self._paths, self._batch_size, self._rng = paths, batch_size, np.random.default_rng(5)
    self._queue, self._stop = queue.Queue(maxsize=4), threading.Event()
    for path in paths:
      load_repository(path)
    self._thread = threading.Thread(target=self._work, daemon=True)
    self._thread.start()
  def _work(self):
    while not self._stop.is_set():
      picks = self._rng.integers(len(self._paths), size=self._batch_size)
      repositories = [load_repository(self._paths[i]) for i in picks]
      trees = np.stack([trees[self._rng.integers(len(trees))] for trees in repositories])
      self._queue.put(jax.device_put(trees))
  def __next__(self):
    return self._queue.get()
  def close(self):
    self._stop.set()
    while self._thread.is_alive():
      if not self._queue.empty():
        self._queue.get()
      self._thread.join(timeout=0.05)

class TypeNet(hk.Module):  # messages per edge type over dense adjacency, one GRU shared by all rounds
  def __init__(self, hidden, rounds, name=None):
    super().__init__(name=name)
    self._hidden, self._rounds = hidden, rounds
  def __call__(self, trees, vectors, name_dropout=None):
    b, n, _ = trees.shape
    word, subtokens = trees[..., WORD], trees[..., SUBTOKEN:]
    if name_dropout is not None:
      keep = jax.random.bernoulli(hk.next_rng_key(), 1.0 - name_dropout, (b, n, 1))
      word, subtokens = jnp.where(keep[..., 0], word, 0), jnp.where(keep, subtokens, 0)
    kind = hk.Embed(len(KINDS), self._hidden, name="kind")(trees[..., KIND])
    parts = hk.Embed(NUM_BUCKETS, self._hidden, name="subtoken")(subtokens).mean(axis=2)
    features = jnp.concatenate([kind, parts, vectors[word]], axis=-1)
    h = jnp.tanh(hk.Linear(self._hidden, name="input")(features)).reshape(b * n, self._hidden)
    edges = [jax.nn.one_hot(trees[..., c], n) for c in (PARENT, SIBLING, LAST_USE)]
    edges += [jnp.swapaxes(e, 1, 2) for e in edges]
    types = len(edges)
    edges = jnp.concatenate([e / jnp.maximum(e.sum(-1, keepdims=True), 1.0) for e in edges], axis=-1)
    message = hk.Linear(types * self._hidden, name="message")
    cell = hk.GRU(self._hidden, name="update")
    for _ in range(self._rounds):
      m = jnp.swapaxes(message(h).reshape(b, n, types, self._hidden), 1, 2).reshape(b, types * n, self._hidden)
      _, h = cell(jnp.matmul(edges, m).reshape(b * n, self._hidden), h)
    h = hk.LayerNorm(-1, True, True, name="norm")(h)
    return hk.Linear(len(TYPES), name="types")(h).reshape(b, n, len(TYPES))

def score(logits, labels):
  mask = (labels >= 0).astype(jnp.float32)
  losses = optax.softmax_cross_entropy_with_integer_labels(logits, jnp.maximum(labels, 0))
  right = (jnp.argmax(logits, axis=-1) == labels).astype(jnp.float32)
  return (losses * mask).sum() / mask.sum(), (right * mask).sum() / mask.sum()

class CsvWriter:
  def __init__(self, path, fields):
    self._file = open(path, "w", newline="")
    self._rows = csv.DictWriter(self._file, ["step", "split"] + fields)
    self._rows.writeheader()
  def write(self, step, split, scalars):
    scalars = {k: round(float(v), 5) for k, v in jax.device_get(scalars).items()}
    self._rows.writerow(dict(scalars, step=step, split=split))
    self._file.flush()
    return scalars

class TrainState(NamedTuple):
  params: Any
  opt_state: Any
  rng: Any

class Experiment:
  def __init__(self, config, paths):
    train, held_out = paths[:-config.held_out], paths[-config.held_out:]
    trees = np.stack([tree for path in held_out for tree in load_repository(path)])
    size = config.eval_batch_size
    self._eval_batches = [jax.device_put(trees[i:i + size]) for i in range(0, len(trees) - size + 1, size)]
    vectors = np.random.default_rng(1).standard_normal((NUM_VECTORS, VECTOR_DIM), dtype=np.float32)
    vectors *= VECTOR_DIM ** -0.5
    self._vectors = jnp.array(vectors)
    self._forward = hk.transform(lambda *inputs: TypeNet(config.hidden, config.rounds)(*inputs))
    schedule = optax.warmup_cosine_decay_schedule(0.0, config.peak_lr, 50, max(config.steps + config.warmup, 200), 1e-4)
    self._optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule, weight_decay=1e-4))
    self._update = jax.jit(self._update_fn, donate_argnums=(0,))
    self._eval = jax.jit(self._eval_fn)
    init_rng, rng = jax.random.split(jax.random.PRNGKey(17))
    params = jax.jit(self._forward.init)(init_rng, self._eval_batches[0], self._vectors)
    self.state = TrainState(params, self._optimizer.init(params), rng)
    self._loader = Loader(train, config.batch_size)
  def _update_fn(self, state, trees, vectors, name_dropout):
    rng, step_rng = jax.random.split(state.rng)
    def loss_fn(params):
      return score(self._forward.apply(params, step_rng, trees, vectors, name_dropout), trees[..., LABEL])
    (loss, accuracy), grads = jax.value_and_grad(loss_fn, has_aux=True)(state.params)
    updates, opt_state = self._optimizer.update(grads, state.opt_state, state.params)
    params = optax.apply_updates(state.params, updates)
    return TrainState(params, opt_state, rng), {"loss": loss, "accuracy": accuracy}
  def _eval_fn(self, params, trees, vectors):
    loss, accuracy = score(self._forward.apply(params, None, trees, vectors), trees[..., LABEL])
    return {"loss": loss, "accuracy": accuracy}
  def step(self, global_step):
    trees = next(self._loader)
    name_dropout = 0.3 * (1.0 - 0.97 ** (global_step // 30))  # identifiers are hidden more and more, in stages
    self.state, scalars = self._update(self.state, trees, self._vectors, name_dropout)
    return scalars
  def evaluate(self):
    results = [self._eval(self.state.params, trees, self._vectors) for trees in self._eval_batches]
    return {k: sum(r[k] for r in results) / len(results) for k in results[0]}
  def save(self, path):
    with open(path, "wb") as f:
      pickle.dump(jax.device_get(self.state.params), f, protocol=pickle.HIGHEST_PROTOCOL)
  def close(self):
    self._loader.close()

def main():
  config = Config(steps=int(sys.argv[1])) if len(sys.argv) > 1 else Config()
  with tempfile.TemporaryDirectory(prefix="ast_types_") as folder:
    experiment = Experiment(config, write_corpus(folder, config.repositories))
    writer = CsvWriter(os.path.join(folder, "metrics.csv"), ["loss", "accuracy"])
    for global_step in range(config.warmup):
      scalars = experiment.step(global_step)
    writer.write(0, "eval", experiment.evaluate())
    jax.block_until_ready((experiment.state, scalars))
    start = time.perf_counter()
    for done in range(1, config.steps + 1):
      scalars = experiment.step(config.warmup + done - 1)
      if done % config.log_every == 0:
        row = writer.write(done, "train", scalars)
        if done % (4 * config.log_every) == 0:
          print(f"step {done:5d}  loss {row['loss']:.4f}  accuracy {row['accuracy']:.3f}", flush=True)
      if done % config.eval_every == 0:
        row = writer.write(done, "eval", experiment.evaluate())
        print(f"step {done:5d}  held-out accuracy {row['accuracy']:.3f}", flush=True)
        experiment.save(os.path.join(folder, "params.pkl"))
    jax.block_until_ready((experiment.state, scalars))
    seconds = time.perf_counter() - start
    experiment.close()
  print(f"done {config.steps} steps in {seconds:.3f} s")

if __name__ == "__main__":
  main()
