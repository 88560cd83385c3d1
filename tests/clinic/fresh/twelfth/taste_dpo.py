"""Offline preference learning for a toy assistant, start to end, without a simulator.

1. a reward model is fitted to noisy pairwise judgements (Bradley-Terry);
2. a small decoder is warmed up on demonstrations (SFT) and frozen as the reference;
3. the decoder is fine-tuned on reward-labelled pairs with soft-label DPO.

Everything is a plain function; what is fixed for a run is bound with functools.partial.
"""
import sys
import time
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import struct
from flax.training.train_state import TrainState

VOCAB, BOS = 64, 0
PROMPT, RESPONSE = 4, 8
LENGTH = 1 + PROMPT + RESPONSE           # BOS, prompt, response
WIDTH, HEADS, LAYERS = 64, 4, 2
PAIRS = 4096                             # pairs in the offline set
MICRO, ACCUMULATE = 16, 2                # pairs in a micro-batch, micro-batches in an update
REFRESH = 50                             # updates between two changes of beta


# ------------------------------------------------------------------ offline data

def make_offline_set(seed):
    """Prompts, two answers each, a noisy human judgement, and demonstrations."""
    rng = np.random.default_rng(seed)
    liked = rng.permutation(np.arange(1, VOCAB))          # which token answers which
    prompts = rng.integers(1, VOCAB, (PAIRS, PROMPT))
    ideal = liked[np.tile(prompts, (1, RESPONSE // PROMPT)) - 1]

    def answers(skill):
        hit = rng.random((PAIRS, RESPONSE)) < skill
        return np.where(hit, ideal, rng.integers(1, VOCAB, (PAIRS, RESPONSE)))

    left = answers(rng.uniform(0.1, 0.9, (PAIRS, 1)))
    right = answers(rng.uniform(0.1, 0.9, (PAIRS, 1)))
    edge = (left == ideal).sum(1) - (right == ideal).sum(1) + rng.logistic(size=PAIRS)
    chosen = np.where(edge[:, None] > 0, left, right)
    rejected = np.where(edge[:, None] > 0, right, left)
    bos = np.full((PAIRS, 1), BOS)
    full = lambda response: np.concatenate([bos, prompts, response], 1).astype(np.int32)
    return {"chosen": full(chosen), "rejected": full(rejected)}, full(answers(0.4)), ideal


# ------------------------------------------------------------------ models

class RewardModel(nn.Module):
    """Scores an answer token by token against the prompt token it replies to."""
    rank: int = 32

    @nn.compact
    def __call__(self, tokens):                           # (batch, LENGTH)
        table = partial(nn.Embed, VOCAB, self.rank)
        ask = table(name="ask")(tokens[:, 1:1 + PROMPT])
        reply = table(name="reply")(tokens[:, 1 + PROMPT:])
        match = jnp.tile(ask, (1, RESPONSE // PROMPT, 1)) * reply
        return nn.Dense(1, name="score")(match).sum((-2, -1))


class Block(nn.Module):
    @nn.compact
    def __call__(self, x, mask):
        batch, length, _ = x.shape
        qkv = nn.Dense(3 * WIDTH, use_bias=False)(nn.LayerNorm()(x))
        q, k, v = jnp.moveaxis(qkv.reshape(batch, length, 3, HEADS, WIDTH // HEADS), 2, 0)
        weight = jnp.einsum("bqhd,bkhd->bhqk", q, k) * (WIDTH // HEADS) ** -0.5
        weight = jax.nn.softmax(jnp.where(mask, weight, -1e9), axis=-1)
        mixed = jnp.einsum("bhqk,bkhd->bqhd", weight, v).reshape(x.shape)
        x = x + nn.Dense(WIDTH, use_bias=False)(mixed)
        hidden = nn.gelu(nn.Dense(2 * WIDTH)(nn.LayerNorm()(x)))
        return x + nn.Dense(WIDTH)(hidden)


class Decoder(nn.Module):
    @nn.compact
    def __call__(self, tokens):                           # (batch, time) -> logits
        length = tokens.shape[1]
        place = self.param("place", nn.initializers.normal(0.02), (length, WIDTH))
        x = nn.Embed(VOCAB, WIDTH, name="tokens")(tokens) + place
        mask = jnp.tril(jnp.ones((length, length), bool))
        for _ in range(LAYERS):
            x = Block()(x, mask)
        return nn.Dense(VOCAB, use_bias=False, name="unembed")(nn.LayerNorm()(x))


class PolicyState(TrainState):
    """The usual state and a slow copy of the weights, which is what gets deployed."""
    slow: Any = struct.field(pytree_node=True, default=None)


# ------------------------------------------------------------------ losses

def response_logp(apply_fn, params, tokens):
    """Log-probability of each answer given its prompt, (batch,)."""
    logits = apply_fn({"params": params}, tokens[:, :-1])[:, PROMPT:]
    target = jax.nn.one_hot(tokens[:, 1 + PROMPT:], VOCAB)
    return (jax.nn.log_softmax(logits) * target).sum((-2, -1))


def bradley_terry_loss(apply_fn, params, pair):
    margin = apply_fn({"params": params}, pair["chosen"]) - apply_fn({"params": params}, pair["rejected"])
    return -jax.nn.log_sigmoid(margin).mean()


def demonstration_loss(apply_fn, params, tokens):
    return -response_logp(apply_fn, params, tokens).mean() / RESPONSE


def distinct(n, response):
    """Share of an answer's n-grams that did not come up earlier in the answer."""
    grams = jnp.stack([response[i:RESPONSE - n + 1 + i] for i in range(n)], axis=-1)
    same = (grams[:, None] == grams[None]).all(-1)
    return 1.0 - jnp.tril(same, -1).any(-1).astype(jnp.float32).mean()


def variety(tokens):
    response = tokens[:, 1 + PROMPT:]
    return sum(jax.vmap(partial(distinct, n))(response) for n in (1, 2, 3)) / 3.0


def dpo_loss(apply_fn, params, pair, beta):
    """DPO against soft labels from the reward model; dull answers lose a little."""
    both = jnp.concatenate([pair["chosen"], pair["rejected"]])
    logp = response_logp(apply_fn, params, both) - jnp.concatenate([pair["ref_chosen"], pair["ref_rejected"]])
    gain_chosen, gain_rejected = jnp.split(logp, 2)
    implicit = beta * (gain_chosen - gain_rejected)
    margin = pair["margin"] + variety(pair["chosen"]) - variety(pair["rejected"])
    soft = jax.nn.sigmoid(margin)
    loss = -(soft * jax.nn.log_sigmoid(implicit) + (1.0 - soft) * jax.nn.log_sigmoid(-implicit)).mean()
    agree = ((implicit > 0) == (margin > 0)).astype(jnp.float32).mean()
    return loss, {"loss": loss, "agree": agree, "implicit": implicit.mean()}


# ------------------------------------------------------------------ training

def fit(loss_fn, tx, params, data, picks):
    """Short training run as one scan: picks (steps, batch) are rows of data."""
    def body(carry, rows):
        params, opt_state = carry
        batch = jax.tree.map(lambda column: column[rows], data)
        loss, grads = jax.value_and_grad(loss_fn)(params, batch)
        updates, opt_state = tx.update(grads, opt_state, params)
        return (optax.apply_updates(params, updates), opt_state), loss

    (params, _), losses = jax.lax.scan(body, (params, tx.init(params)), picks)
    return params, losses


def accumulated_grads(apply_fn, params, pool, rows, beta):
    """Mean gradient over micro-batches; rows (ACCUMULATE, MICRO) are rows of the pool."""
    slope = jax.grad(partial(dpo_loss, apply_fn), has_aux=True)

    def body(total, micro_rows):
        grads, report = slope(params, jax.tree.map(lambda column: column[micro_rows], pool), beta)
        return jax.tree.map(jnp.add, total, grads), report

    total, reports = jax.lax.scan(body, jax.tree.map(jnp.zeros_like, params), rows)
    return jax.tree.map(lambda g: g / rows.shape[0], total), jax.tree.map(jnp.mean, reports)


def policy_update(state, pool, rows, beta, *, gradients):
    grads, report = gradients(state.params, pool, rows, beta)
    state = state.apply_gradients(grads=grads)
    slow = optax.incremental_update(state.params, state.slow, 0.01)
    return state.replace(slow=slow), report


def score_pool(policy_fn, reward_fn, policy_params, reward_params, pairs):
    """Reference log-probabilities and reward margins of the whole set, in slices."""
    def one(part):
        ref = partial(response_logp, policy_fn, policy_params)
        reward = partial(reward_fn, {"params": reward_params})
        return {"ref_chosen": ref(part["chosen"]), "ref_rejected": ref(part["rejected"]),
                "margin": reward(part["chosen"]) - reward(part["rejected"])}

    slices = jax.tree.map(lambda a: a.reshape(-1, 128, LENGTH), pairs)
    return pairs | jax.tree.map(lambda a: a.reshape(PAIRS), jax.lax.map(one, slices))


def draw_rows(seed):
    rng = np.random.default_rng(seed)
    per_update = MICRO * ACCUMULATE
    while True:
        order = rng.permutation(PAIRS).astype(np.int32)
        for start in range(0, PAIRS - per_update + 1, per_update):
            yield order[start:start + per_update].reshape(ACCUMULATE, MICRO)


def beta_at(progress):
    return 0.1 + 0.2 * 0.5 * (1.0 + np.cos(np.pi * progress))


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 3000
    pairs, demos, ideal = make_offline_set(seed=5)
    pairs, demos = jax.device_put((pairs, demos))
    rng = np.random.default_rng(6)
    policy, reward = Decoder(), RewardModel()
    policy_key, reward_key = jax.random.split(jax.random.key(0))
    policy_params = jax.jit(policy.init)(policy_key, demos[:2, :-1])["params"]
    reward_params = jax.jit(reward.init)(reward_key, demos[:2])["params"]

    fit_reward = jax.jit(partial(fit, partial(bradley_terry_loss, reward.apply), optax.adam(2e-2)))
    reward_params, losses = fit_reward(reward_params, pairs, rng.integers(0, PAIRS, (200, 256)))
    print(f"reward model: loss {float(losses[0]):.3f} -> {float(losses[-20:].mean()):.3f}")
    fit_policy = jax.jit(partial(fit, partial(demonstration_loss, policy.apply), optax.adam(3e-3)))
    policy_params, losses = fit_policy(policy_params, demos, rng.integers(0, PAIRS, (80, 32)))
    print(f"demonstrations: loss {float(losses[0]):.3f} -> {float(losses[-10:].mean()):.3f}")
    pool = jax.jit(partial(score_pool, policy.apply, reward.apply))(policy_params, reward_params, pairs)

    rate = optax.warmup_cosine_decay_schedule(0.0, 1e-3, 50, max(steps, 100))
    tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(rate, weight_decay=0.01))
    state = PolicyState.create(apply_fn=policy.apply, params=policy_params, tx=tx,
                               slow=jax.tree.map(jnp.copy, policy_params))
    state = state.replace(step=jnp.zeros((), jnp.int32))
    gradients = partial(accumulated_grads, policy.apply)
    update = jax.jit(partial(policy_update, gradients=gradients), donate_argnums=0)

    rows = draw_rows(seed=7)
    warm, begun = steps // 4, time.perf_counter()
    for i in range(steps):
        if i == warm:
            jax.block_until_ready(state)
            begun = time.perf_counter()
        if i % REFRESH == 0:
            beta = np.float32(beta_at(i / steps))
        state, report = update(state, pool, next(rows), beta)
        if i % 100 == 99:
            shown = jax.device_get(report)
            print(f"{i + 1:5d}  beta {beta:.3f}  loss {shown['loss']:.4f}  agree {shown['agree']:.3f}"
                  f"  implicit {shown['implicit']:+.3f}", flush=True)
    jax.block_until_ready(state)
    elapsed = time.perf_counter() - begun

    logits = jax.jit(policy.apply)({"params": state.slow}, pairs["chosen"][:512, :-1])
    hits = np.asarray(logits[:, PROMPT:].argmax(-1)) == ideal[:512]
    print(f"greedy tokens the judges would like: {hits.mean():.3f}")
    print(f"done {steps - warm} steps in {elapsed:.3f} s")


if __name__ == "__main__":
    main()
