// Who says a message, in words.
import { phrases } from "../../lib/i18n.js";
import words from "../../words/map.js";

const t = phrases(words);
const ROLES = ["system", "user", "assistant", "tool"];

export const roleOf = ({ role }) => (ROLES.includes(role) ? t(`role_${role}`) : role);
