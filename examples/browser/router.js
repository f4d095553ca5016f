/** Routers, as src/familiar/embedding/species/ has them: the species of each face is told, and its bundle embeds it. */

import { embedCrop } from "./faces.js";
import { checkFormat, readSealed } from "./seals.js";

const FORMAT = "familiar-router/1";
const PLURALS = { person: ["people", "humans"] }; // of a detector's labels, besides those with an s

/**
 * A router with its bundles: {classifier, features, bundles}, each checked by its seal and by the router's; an Error
 * with one line to show where that fails. `features` is the bundle whose embeddings the classifier takes, `bundles` a
 * Map with the bundle of each species that has one.
 * @param {Uint8Array} content the whole router file
 * @param read returns the content of the file at a path beside the router, null where there is none
 * @param open opens a bundle, from its path and content
 */
export async function openRouter(content, name, read, open) {
  const stored = await readSealed(content, "sha256");
  if (!stored) throw new Error(`${name}: is no router of familiar, or was cut or changed. Export it again.`);
  checkFormat(stored, FORMAT, name, "Make it again with `familiar species`.");
  const opened = new Map();
  const openBundle = async (role, { path, file_id }) => {
    if (!opened.has(path)) {
      const bytes = await read(path);
      if (!bytes) {
        throw new Error(
          `${name}: its bundle ${role}, ${path}, is missing. Take all files of the folder that \`familiar export\` ` +
            "wrote, together.",
        );
      }
      opened.set(path, await open(path, bytes));
    }
    if (opened.get(path).metadata.file_id !== file_id) {
      throw new Error(`${name}: was made with another bundle ${role} than ${path}. Export the router again.`);
    }
    return opened.get(path);
  };
  const { classifier } = stored;
  const features = await openBundle("of the classifier", stored.feature_bundle);
  const { space_id, embedding_dim } = features.metadata;
  if (space_id !== classifier.space_id || embedding_dim !== classifier.weights[0].length) {
    throw new Error(`${name}: its classifier was fitted on embeddings of another space. Make it again.`);
  }
  const bundles = new Map();
  for (const species of classifier.names) {
    if (!Object.hasOwn(stored.species_bundles, species)) continue;
    bundles.set(species, await openBundle(`for ${species}`, stored.species_bundles[species]));
  }
  return { classifier, features, bundles };
}

/**
 * A face embedded by the bundle of its species; an Error where the species is unsure or has none.
 * @param crop returns the face as a network takes it, by the network's preprocessing
 * @param {?string} label what the detector says; the classifier decides about the faces that it does not know
 */
export async function embedRouted({ classifier, features, bundles }, crop, label) {
  const told = speciesOfLabel(label, classifier.names);
  const classified = told === undefined ? await embedCrop(features, crop) : null;
  const probabilities = classified
    ? speciesProbabilities(classified.embedding, classifier)
    : classifier.names.map((name) => Number(name === told));
  const { species, probability } = chooseSpecies(probabilities, classifier, bundles);
  const bundle = bundles.get(species);
  const embedded = bundle === features && classified ? classified : await embedCrop(bundle, crop);
  const networkMs = embedded.networkMs + (classified && embedded !== classified ? classified.networkMs : 0);
  return { ...embedded, networkMs, bundle, species, probability };
}

/** softmax((W e + b) / T), a number for each species. */
export function speciesProbabilities(embedding, { weights, bias, temperature }) {
  const logits = weights.map((row, place) => {
    const sum = row.reduce((total, weight, i) => total + weight * embedding[i], 0);
    return (sum + bias[place]) / temperature;
  });
  const largest = Math.max(...logits);
  const exponentials = logits.map((logit) => Math.exp(logit - largest));
  const total = exponentials.reduce((left, right) => left + right);
  return exponentials.map((value) => value / total);
}

function chooseSpecies(probabilities, { names, min_probability }, bundles) {
  const ranked = names.map((species, place) => ({ species, probability: probabilities[place] }));
  ranked.sort((left, right) => right.probability - left.probability);
  const [first, second] = ranked;
  const say = ({ species, probability }) => `${species} ${(100 * probability).toFixed(0)} %`;
  if (first.probability < min_probability) {
    throw new Error(
      `unsure of the species: ${say(first)}, ${say(second)}. Choose the bundle of the right one alone.`,
    );
  }
  if (!bundles.has(first.species)) {
    throw new Error(`shows a ${first.species} (${say(first)}, ${say(second)}), and there is no bundle for ${first.species}.`);
  }
  return first;
}

/** The species that the detector has told, in the singular or the plural; undefined where it has told none of these. */
function speciesOfLabel(label, names) {
  if (!label) return undefined;
  const forms = [label, `${label}s`, ...(PLURALS[label] ?? [])];
  return names.find((name) => name === label || forms.includes(name.toLowerCase()));
}
